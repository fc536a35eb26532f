package simulation

import "time"

// Explorations returns the small worlds that are looked at whole.
func Explorations() []Exploration {
	const (
		settled = 4 * time.Second // what starts together has its place by then
		lease   = 10 * time.Second
		lapse   = lease + 3*time.Second
	)
	return []Exploration{
		{Name: "join-leave", Peers: 1, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Joined: 1, Leave: 1}},
		{Name: "join-lossy", Peers: 1, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Joined: 1, Lose: 1, Late: 1, Twice: 1}},
		{Name: "join-crash", Peers: 1, Partitions: 2, From: settled, For: 5 * time.Second, Faults: 2, Budget: Budget{Joined: 1, Crash: 1}},
		{Name: "delay", Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Late: 1, Lose: 1, Leave: 1}},
		{Name: "pause", Peers: 2, Partitions: 1, From: settled, For: lapse, Faults: 1, Budget: Budget{Pause: 1}},
		{Name: "cut", Peers: 2, Partitions: 1, From: settled, For: lapse + 2*time.Second, Faults: 1, Budget: Budget{Cut: 1}},
		{Name: "crash", Peers: 2, Partitions: 2, From: settled, For: lapse, Faults: 2, Budget: Budget{Crash: 1, Late: 1}},
		{Name: "memloss", Peers: 2, Partitions: 2, From: settled, For: lapse, Faults: 1, Budget: Budget{Forget: 1}},
		{Name: "memloss-join", Peers: 1, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Forget: 1, Joined: 1}},
		{Name: "memloss-move", Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Forget: 1, Leave: 1}},
		{Name: "setback", Peers: 2, Partitions: 1, From: settled, For: 5 * time.Second, Faults: 2, Budget: Budget{Setback: 1, Leave: 1}},
		{Name: "setback-join", Peers: 1, Partitions: 1, From: settled, For: 5 * time.Second, Faults: 2, Budget: Budget{Setback: 1, Joined: 1}},
		{Name: "restart", Peers: 2, Partitions: 2, From: settled, For: 5 * time.Second, Faults: 2, Budget: Budget{Restart: 1, Leave: 1}},
		{Name: "3peers", Peers: 2, Partitions: 1, From: settled, For: 3 * time.Second, Faults: 2, Budget: Budget{Joined: 1, Leave: 1, Crash: 1}},
		{Name: "require", Peers: 2, Partitions: 1, From: settled, For: 2 * time.Second, Faults: 2, Budget: Budget{Require: 2, Leave: 1}},
		{Name: "mood", Peers: 2, Partitions: 1, From: settled, For: 6 * time.Second, Faults: 2, Budget: Budget{Mood: 2}},
		{Name: "rest", Peers: 2, Partitions: 1, From: settled, For: 2 * time.Second, Faults: 2, Budget: Budget{Rest: 2, Leave: 1}},
		{Name: "drain", Peers: 2, Partitions: 1, From: settled, For: 2 * time.Second, Faults: 2, Budget: Budget{Drain: 2, Leave: 1}},
		{Name: "data", Peers: 2, Partitions: 1, From: settled, For: 2 * time.Second, Faults: 2, Budget: Budget{Lost: 2, Hurry: 1}},

		{Name: "barrier-join-leave", Barrier: true, Peers: 1, Partitions: 2, From: settled, For: 3 * time.Second, Faults: 2, Budget: Budget{Joined: 1, Leave: 1}},
		{Name: "barrier-delay", Barrier: true, Peers: 2, Partitions: 1, From: settled, For: 3 * time.Second, Faults: 2, Budget: Budget{Late: 1, Lose: 1, Leave: 1}},
		{Name: "barrier-crash", Barrier: true, Peers: 2, Partitions: 2, From: settled, For: lapse, Faults: 1, Budget: Budget{Crash: 1}},
		{Name: "barrier-pause", Large: true, Barrier: true, Peers: 2, Partitions: 2, From: settled, For: lapse, Faults: 1, Budget: Budget{Pause: 1}},
		{Name: "barrier-memloss", Barrier: true, Peers: 2, Partitions: 2, From: settled, For: lapse, Faults: 1, Budget: Budget{Forget: 1}},
		{Name: "barrier-setback", Barrier: true, Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Setback: 1, Leave: 1}},
		{Name: "barrier-data", Barrier: true, Peers: 2, Partitions: 1, From: settled, For: 2 * time.Second, Faults: 2, Budget: Budget{Lost: 1, Require: 1}},

		{Name: "barrier-rest", Barrier: true, Peers: 2, Partitions: 1, From: settled, For: 2 * time.Second, Faults: 2, Budget: Budget{Rest: 2, Leave: 1}},

		{Name: "barrier-drain", Barrier: true, Peers: 2, Partitions: 1, From: settled, For: 3 * time.Second / 2, Faults: 2, Budget: Budget{Drain: 2}},

		{Name: "barrier-3peers", Large: true, Barrier: true, Peers: 2, Partitions: 2, From: settled, For: 3 * time.Second, Faults: 2, Budget: Budget{Joined: 1, Leave: 1}},
		{Name: "large-join-leave", Large: true, Peers: 1, Partitions: 1, From: settled, For: 5 * time.Second, Faults: 3, Budget: Budget{Joined: 1, Leave: 1, Lose: 1}},
		{Name: "large-join-lossy", Large: true, Peers: 1, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Joined: 1, Lose: 1, Late: 1, Twice: 1}},
		{Name: "large-join-crash", Large: true, Peers: 1, Partitions: 2, From: settled, For: lapse, Faults: 2, Budget: Budget{Joined: 1, Crash: 1}},
		{Name: "large-delay", Large: true, Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Late: 2, Leave: 1}},
		{Name: "large-pause-late", Large: true, Peers: 2, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Pause: 1, Late: 1}},
		{Name: "large-pause-join", Large: true, Peers: 1, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Pause: 1, Joined: 1}},
		{Name: "large-cut-late", Large: true, Peers: 2, Partitions: 1, From: settled, For: lapse + 2*time.Second, Faults: 2, Budget: Budget{Cut: 1, Late: 1}},
		{Name: "large-memloss-pause", Large: true, Peers: 2, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Forget: 1, Pause: 1}},
		{Name: "large-3peers", Large: true, Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Joined: 1, Leave: 1, Crash: 1}},
		{Name: "large-barrier-data", Large: true, Barrier: true, Peers: 2, Partitions: 2, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Lost: 1, Require: 1, Hurry: 1, Leave: 1}},
		{Name: "large-mood-late", Large: true, Peers: 2, Partitions: 1, From: settled, For: 6 * time.Second, Faults: 2, Budget: Budget{Mood: 2, Late: 1}},
		{Name: "large-require-setback", Large: true, Peers: 2, Partitions: 2, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Require: 1, Setback: 1, Leave: 1, Joined: 1}},
		{Name: "large-require-late", Large: true, Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Require: 1, Late: 1, Joined: 1, Lost: 1}},
		{Name: "large-mood", Large: true, Peers: 2, Partitions: 1, From: settled, For: 6 * time.Second, Faults: 3, Budget: Budget{Mood: 2, Lost: 1, Leave: 1}},
		{Name: "large-pause-require", Large: true, Peers: 2, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Pause: 1, Require: 1}},
		{Name: "large-memloss-lost", Large: true, Peers: 2, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Forget: 1, Lost: 1, Hurry: 1}},
		{Name: "large-rest-late", Large: true, Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Rest: 2, Late: 1, Leave: 1, Crash: 1}},
		{Name: "large-rest-pause", Large: true, Peers: 2, Partitions: 1, From: settled, For: lapse, Faults: 2, Budget: Budget{Rest: 1, Pause: 1}},
		{Name: "large-drain-late", Large: true, Peers: 2, Partitions: 1, From: settled, For: 4 * time.Second, Faults: 3, Budget: Budget{Drain: 2, Late: 1, Leave: 1, Crash: 1}},
		{Name: "large-3peers-2part", Large: true, Peers: 3, Partitions: 2, From: settled, For: 4 * time.Second, Faults: 2, Budget: Budget{Leave: 1, Crash: 1, Late: 1}},
	}
}
