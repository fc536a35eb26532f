package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is what one server says of itself. Maps lack what it did not tell.
type server struct {
	info    map[string]string // of all sections asked for
	infoErr error
	config  map[string]string
	skew    time.Duration // its clock minus ours, half a round trip allowed for
	timeErr error
}

// ask asks a server everything there is to know. Each question may be refused.
func ask(ctx context.Context, client redis.UniversalClient, now func() time.Time) server {
	s := server{info: make(map[string]string), config: make(map[string]string)}
	for _, section := range []string{"server", "persistence", "memory", "replication", "cluster"} {
		text, err := client.Info(ctx, section).Result()
		if err != nil {
			if s.infoErr == nil || s.infoErr.Error() != err.Error() { // as a rule all are refused for one reason
				s.infoErr = errors.Join(s.infoErr, err)
			}
			continue
		}
		maps.Copy(s.info, fields(text))
	}
	for _, parameter := range []string{"appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag", "stop-writes-on-bgsave-error"} {
		values, err := client.ConfigGet(ctx, parameter).Result()
		if err != nil {
			continue // managed stores and emulators refuse CONFIG
		}
		maps.Copy(s.config, values)
	}
	before := now()
	theirs, err := client.Time(ctx).Result()
	after := now()
	s.skew, s.timeErr = theirs.Sub(before.Add(after.Sub(before)/2)), err
	return s
}

// fields reads what servers say of themselves: a field and its value a line.
func fields(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[field] = value
		}
	}
	return all
}

func (s server) examine() []Finding {
	if lost(s.timeErr) && lost(s.infoErr) {
		return []Finding{{Check: silent, Severity: Danger, What: fmt.Sprintf("it does not answer: %v", s.timeErr),
			Risk: "what is on it stands still: partitions, and all of a name whose ledger is there", Do: "start it, or let a replica take its place"}}
	}
	return []Finding{s.version(), s.persistence(), s.eviction(), s.replicas(), s.clock()}
}

func (s server) version() Finding {
	f := Finding{Check: "version", Severity: Fine}
	v := s.info["redis_version"]
	if v == "" {
		return s.untold("version")
	}
	f.What = "Redis " + v
	if valkey := s.info["valkey_version"]; valkey != "" {
		f.What = fmt.Sprintf("Valkey %s, which is like Redis %s", valkey, v)
	}
	major, _, _ := strings.Cut(v, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		f.Severity, f.Risk, f.Do = Danger, "the scripts are written for, and tested on, Redis 7.0 and later", "upgrade the server"
	}
	return f
}

// persistence says what a restart of the server costs.
func (s server) persistence() Finding {
	f := Finding{Check: "persistence"}
	if s.info["aof_enabled"] == "" {
		return s.untold("persistence")
	}
	fsync, save := s.config["appendfsync"], s.config["save"]
	switch {
	case s.info["aof_enabled"] == "1" && s.info["aof_last_write_status"] == "err":
		f.Severity, f.What = Danger, "the append only file cannot be written"
		f.Risk, f.Do = "every write is refused: leases run out, nothing is worked on", "look at the server's log and disk"
	case s.info["rdb_last_bgsave_status"] == "err" && s.config["stop-writes-on-bgsave-error"] != "no" && (save != "" || len(s.config) == 0):
		f.Severity, f.What = Danger, "the last snapshot failed, and the server refuses writes because of it (MISCONF)"
		if len(s.config) == 0 {
			f.What = "the last snapshot failed, and the server may refuse writes because of it (MISCONF)"
		}
		f.Risk, f.Do = "leases run out, nothing is worked on", "look at the server's log and disk"
	case s.info["aof_enabled"] == "1" && fsync == "always":
		f.Severity, f.What = Fine, "append only file, written before each answer"
	case s.info["aof_enabled"] == "1" && fsync == "no":
		f.Severity, f.What = Warning, "append only file, written when the system likes"
		f.Risk = "a crash of the host loses the enqueues and settles of the last half minute"
		f.Do = "CONFIG SET appendfsync everysec"
	case s.info["aof_enabled"] == "1" && fsync == "":
		f.Severity, f.What = Note, "append only file; how often it is written is not told"
		f.Risk = "a crash of the host may lose the enqueues and settles of the last half minute"
		f.Do = "let a user who may read CONFIG look: appendfsync should be everysec or always"
	case s.info["aof_enabled"] == "1":
		f.Severity, f.What = Fine, "append only file, written every second"
		f.Risk = "a crash of the host, or of the server while its disk is slow, loses up to two seconds: tasks enqueued in them are gone, tasks settled in them run again"
	case save != "":
		f.Severity, f.What = Warning, fmt.Sprintf("snapshots only (save %q)", save)
		f.Risk = "a restart loses everything since the last one: tasks enqueued since are gone, tasks settled since run again"
		f.Do = "CONFIG SET appendonly yes, and CONFIG REWRITE"
	case len(s.config) == 0:
		f.Severity, f.What = Warning, "no append only file; whether there are snapshots is not told"
		f.Risk, f.Do = "a restart loses what was not in one", "turn the append only file on"
	default:
		f.Severity, f.What = Danger, "nothing is kept on disk"
		f.Risk, f.Do = "a restart loses every task", "CONFIG SET appendonly yes, and CONFIG REWRITE"
	}
	return f
}

func (s server) eviction() Finding {
	f := Finding{Check: "memory", Severity: Fine}
	policy := s.info["maxmemory_policy"]
	if policy == "" {
		return s.untold("memory")
	}
	most, _ := strconv.ParseFloat(s.info["maxmemory"], 64)
	used, _ := strconv.ParseFloat(s.info["used_memory"], 64)
	f.What = fmt.Sprintf("%s of %s, %s", mebibytes(used), mebibytes(most), policy)
	switch {
	case strings.HasPrefix(policy, "volatile-") && most > 0:
		f.Severity = Warning
		f.Risk = "when the memory is full the server throws away what expires: the locks of unique tasks, the marks by which a push that is repeated is known"
		f.Do = "CONFIG SET maxmemory-policy noeviction, and CONFIG REWRITE"
	case policy != "noeviction" && most > 0:
		f.Severity = Danger
		f.Risk = "when the memory is full the server throws keys away: tasks, fences, the ledger"
		f.Do = "CONFIG SET maxmemory-policy noeviction, and CONFIG REWRITE"
	case policy != "noeviction":
		f.Severity, f.What = Warning, "no limit, "+policy
		f.Risk = "once somebody sets maxmemory the server throws keys away"
		f.Do = "CONFIG SET maxmemory-policy noeviction, and CONFIG REWRITE"
	case most == 0:
		f.Severity, f.What = Note, fmt.Sprintf("%s used, no limit, noeviction", mebibytes(used))
		f.Risk = "a backlog grows until the system kills the server"
		f.Do = "set maxmemory below what the host has: then only enqueues are refused, and what settles makes room"
	case used >= most:
		f.Severity = Danger
		f.Risk, f.Do = "enqueues are refused; settles and leases go on", "more peers, or more memory: CONFIG SET maxmemory"
	case used > 0.9*most:
		f.Severity = Warning
		f.Risk, f.Do = "enqueues will be refused soon; settles and leases go on", "more peers, more memory, or a limit on the backlog"
	}
	return f
}

func mebibytes(n float64) string { return fmt.Sprintf("%.0f MiB", n/(1<<20)) }

func (s server) replicas() Finding {
	f := Finding{Check: "replicas", Severity: Fine}
	switch s.info["role"] {
	case "":
		return s.untold("replicas")
	case "slave":
		f.Severity, f.What = Danger, "the address is a replica's"
		f.Risk, f.Do = "every write is refused (READONLY)", "give the address of the master, or of a Sentinel"
		return f
	}
	n, _ := strconv.Atoi(s.info["connected_slaves"])
	least := s.config["min-replicas-to-write"]
	f.What = fmt.Sprintf("%d, min-replicas-to-write %s", n, least)
	switch {
	case s.lacksReplicas():
		f.Severity, f.What = Danger, fmt.Sprintf("%d, of which %s follow: fewer than min-replicas-to-write, and the server refuses every write (NOREPLICAS)", n, s.info[followers])
		f.Risk, f.Do = "leases run out, nothing is worked on", "let the replicas follow again; until they do, CONFIG SET min-replicas-to-write 0 lets work go on, with what a fail-over then loses"
	case n == 0:
		f.Severity, f.What = Note, "none: there is one copy"
		f.Risk, f.Do = "while the server is away nothing is worked on; with its disk goes everything", "a replica, with Sentinel or a cluster"
	case least == "":
		f.Severity, f.What = Note, fmt.Sprintf("%d; whether min-replicas-to-write is set is not told", n)
		f.Risk = "without it a master that is cut off takes writes which a fail-over throws away"
	case least == "0" || s.config["min-replicas-max-lag"] == "0": // either is off to Redis
		f.Severity = Warning
		if least != "0" {
			f.What += ", but min-replicas-max-lag 0, which switches it off"
		}
		f.Risk = "a master that is cut off goes on to take writes, which are thrown away when it comes back: enqueues are lost, settles are repeated"
		f.Do = "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10; WaitReplicas in the peers' ledger"
	}
	return f
}

// followers is how many replicas have said something within min-replicas-max-lag. Only a server that asks for some counts them.
const followers = "min_slaves_good_slaves"

// lacksReplicas reports whether the server has fewer followers than it asks for. How many that are is not told where
// CONFIG is refused: without any it has too few.
func (s server) lacksReplicas() bool {
	have, err := strconv.Atoi(s.info[followers])
	if err != nil {
		return false
	}
	least, err := strconv.Atoi(s.config["min-replicas-to-write"])
	if err != nil {
		least = 1
	}
	return have < least
}

// clock compares the store's clock with ours, which are peers' clocks too, most likely.
func (s server) clock() Finding {
	if s.timeErr != nil {
		return unknown("clock", s.timeErr)
	}
	f := Finding{Check: "clock", Severity: Fine, What: fmt.Sprintf("%v apart from this host's", s.skew.Abs().Round(time.Millisecond))}
	if s.skew.Abs() > 2*time.Second {
		f.Severity = Warning
		f.Risk = "ownership does not depend on it, but scheduled tasks come due by the store's clock, and logs and history do not fit together"
		f.Do = "let both hosts be set by NTP"
	}
	return f
}

// untold says that the server did not tell.
func (s server) untold(check string) Finding {
	err := s.infoErr
	if err == nil {
		err = errors.New("INFO has no word of it")
	}
	return unknown(check, err)
}
