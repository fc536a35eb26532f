package progresstest

// Explorations returns the small worlds that are looked at whole.
func Explorations() []Exploration {
	return []Exploration{
		{Name: "hand-over", Keys: []uint64{1, 1, 0}, Later: 1, Owners: 3, Window: 2, Lifted: 2, Limit: 2, Budget: Budget{Retry: 1, Requeue: 1}},
		{Name: "late", Keys: []uint64{1, 1}, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Late: 2, Retry: 1}},
		{Name: "late-retry2", Keys: []uint64{0, 0}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Late: 1, Twice: 1, Retry: 2}},
		{Name: "lift", Keys: []uint64{1, 2, 1}, Owners: 2, Window: 2, Lifted: 2, Limit: 3, Faults: 1, Budget: Budget{Late: 1, Lose: 1}},
		{Name: "line", Keys: []uint64{1, 2, 1}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Lose: 1, Retry: 1}},
		{Name: "lost", Keys: []uint64{1, 1}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Lose: 2, Retry: 1, Dead: 1}},
		{Name: "pass", Keys: []uint64{0, 0}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Lose: 1, Late: 1, Requeue: 1}},
		{Name: "crash", Keys: []uint64{1, 1}, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Crash: 1, Late: 1, Retry: 1}},
		{Name: "pause", Keys: []uint64{1, 1}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Lapse: 1, Late: 1}},
		{Name: "3owners", Keys: []uint64{1, 1}, Owners: 3, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Crash: 1, Lapse: 1}},
		{Name: "poison", Keys: []uint64{0, 0}, Poison: 1, Owners: 4, Window: 2, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Late: 1, Lose: 1, Retry: 1}},
		{Name: "poison-3", Keys: []uint64{0, 0, 0}, Poison: 2, Owners: 4, Window: 2, Lifted: 2, Limit: 2},
		{Name: "failover", Keys: []uint64{1, 1}, Later: 1, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Failover: 1, Retry: 1}},
		{Name: "announce", Keys: []uint64{1, 1}, Later: 1, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Announce: 1, Retry: 1, Lose: 1}},
		{Name: "announce-crash", Keys: []uint64{1, 1}, Later: 1, Owners: 3, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Announce: 1, Crash: 1, Lapse: 1}},
		{Name: "announce-late", Keys: []uint64{1, 1}, Later: 1, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Announce: 1, Late: 1, Twice: 1}},
		{Name: "announce-poison", Keys: []uint64{0, 0}, Later: 1, Poison: 2, Owners: 4, Window: 2, Lifted: 2, Limit: 2, Budget: Budget{Announce: 1}},
		{Name: "announce-failover", Keys: []uint64{0, 0}, Later: 2, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Announce: 1, Failover: 1}},
		{Name: "away", Away: true, Keys: []uint64{1, 1}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Crash: 1, Late: 1, Retry: 1}},
		{Name: "withheld", Away: true, Letter: true, Keys: []uint64{1, 1, 0}, Poison: 1, Owners: 5, Window: 2, Lifted: 2, Limit: 2},
		{Name: "withheld-late", Away: true, Letter: true, Keys: []uint64{1, 1}, Poison: 1, Owners: 5, Window: 1, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Late: 1, Lose: 1, Twice: 1, Retry: 1}},

		{Name: "large-3keys", Large: true, Keys: []uint64{1, 1, 2}, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 1, Budget: Budget{Late: 1, Retry: 1}},
		{Name: "large-late", Large: true, Keys: []uint64{1, 1}, Owners: 2, Window: 1, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Late: 2, Lose: 1, Retry: 2}},
		{Name: "large-3", Large: true, Keys: []uint64{1, 1, 0}, Later: 1, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Late: 1, Lose: 1, Retry: 1, Requeue: 1}},
		{Name: "large-crash-pause", Large: true, Keys: []uint64{1, 1}, Owners: 3, Window: 1, Lifted: 2, Limit: 2, Faults: 3, Budget: Budget{Crash: 1, Lapse: 1, Late: 1}},
		{Name: "large-poison", Large: true, Keys: []uint64{0, 0, 1}, Poison: 2, Owners: 5, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Late: 2}},
		{Name: "large-failover", Large: true, Keys: []uint64{1, 1}, Later: 1, Owners: 3, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Failover: 1, Late: 1, Crash: 1, Retry: 1}},
		{Name: "large-away", Large: true, Away: true, Keys: []uint64{1, 1, 0}, Owners: 2, Window: 2, Lifted: 2, Limit: 2, Faults: 2, Budget: Budget{Lapse: 1, Late: 1, Retry: 1}},
	}
}
