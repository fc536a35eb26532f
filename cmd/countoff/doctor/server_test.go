package doctor

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// What CONFIG does not tell is not taken for its default.
func TestWhatTheServerDoesNotTellIsNotSaid(t *testing.T) {
	aof := map[string]string{"aof_enabled": "1", "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok"}
	failed := map[string]string{"aof_enabled": "1", "rdb_last_bgsave_status": "err"}
	for _, c := range []struct {
		info, config map[string]string
		severity     Severity
		word         string
	}{
		{aof, map[string]string{"appendfsync": "everysec"}, Fine, "written every second"},
		{aof, nil, Note, "how often it is written is not told"},
		{failed, map[string]string{"appendfsync": "always", "save": "3600 1", "stop-writes-on-bgsave-error": "yes"}, Danger, "refuses writes"},
		{failed, map[string]string{"appendfsync": "always", "save": "", "stop-writes-on-bgsave-error": "yes"}, Fine, "before each answer"},
		{failed, map[string]string{"appendfsync": "always", "save": "3600 1", "stop-writes-on-bgsave-error": "no"}, Fine, "before each answer"},
		{failed, nil, Danger, "may refuse writes"},
	} {
		if f := (server{info: c.info, config: c.config}).persistence(); f.Severity != c.severity || !strings.Contains(f.What, c.word) {
			t.Errorf("%v, %v: want %s with %q, is %+v", c.info, c.config, c.severity, c.word, f)
		}
	}
}

// Redis counts replicas only where both parameters are above 0.
func TestReplicasThatAreNotWaitedFor(t *testing.T) {
	master := map[string]string{"role": "master", "connected_slaves": "2"}
	for _, c := range []struct {
		least, lag string
		severity   Severity
		word       string
	}{
		{"1", "10", Fine, "2, min-replicas-to-write 1"},
		{"1", "0", Warning, "min-replicas-max-lag 0, which switches it off"},
		{"0", "10", Warning, "min-replicas-to-write 0"},
		{"0", "0", Warning, "min-replicas-to-write 0"},
		{"1", "", Fine, "min-replicas-to-write 1"},
		{"", "", Note, "is not told"},
	} {
		config := map[string]string{}
		for parameter, value := range map[string]string{"min-replicas-to-write": c.least, "min-replicas-max-lag": c.lag} {
			if value != "" {
				config[parameter] = value
			}
		}
		f := server{info: master, config: config}.replicas()
		if f.Severity != c.severity || !strings.Contains(f.What, c.word) || f.Severity == Warning && !strings.Contains(f.Do, "min-replicas-max-lag 10") {
			t.Errorf("%v: want %s with %q, is %+v", config, c.severity, c.word, f)
		}
	}
}

// Replicas that are connected and say nothing do not count: the server refuses every write. So it does without any.
func TestAServerThatLacksReplicas(t *testing.T) {
	for _, c := range []struct {
		connected, following, least string
		lacks                       bool
	}{
		{"1", "0", "1", true},
		{"0", "0", "1", true},
		{"2", "1", "2", true},
		{"2", "1", "1", false},
		{"1", "0", "", true}, // CONFIG is refused
		{"2", "1", "", false},
		{"1", "", "0", false},
	} {
		s := server{info: map[string]string{"role": "master", "connected_slaves": c.connected}, config: make(map[string]string)}
		if c.following != "" {
			s.info["min_slaves_good_slaves"] = c.following
		}
		if c.least != "" {
			s.config["min-replicas-to-write"] = c.least
		}
		f := s.replicas()
		if lacks := f.Severity == Danger && strings.Contains(f.What, "refuses every write (NOREPLICAS)"); lacks != c.lacks {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// Valkey says which Redis it is like, and is called by its own name.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		redis, valkey string
		severity      Severity
		what          string
	}{
		{"8.0.2", "", Fine, "Redis 8.0.2"},
		{"7.2.4", "8.1.1", Fine, "Valkey 8.1.1, which is like Redis 7.2.4"},
		{"6.2.14", "", Danger, "Redis 6.2.14"},
	} {
		info := map[string]string{"redis_version": c.redis}
		if c.valkey != "" {
			info["valkey_version"] = c.valkey
		}
		if f := (server{info: info}).version(); f.Severity != c.severity || f.What != c.what {
			t.Errorf("%v: want %s, %q, is %+v", info, c.severity, c.what, f)
		}
	}
}

// Of a cluster one master of which is down all slots are assigned, and not all are served. The master is
// one finding, and not one of each thing that it does not tell.
func TestAMasterThatIsDown(t *testing.T) {
	for _, c := range []struct {
		info string
		want Severity
	}{
		{"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n", Fine},
		{"cluster_state:fail\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:10922\r\n", Danger},
		{"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:10922\r\n", Danger}, // it need not be covered
		{"cluster_state:ok\r\ncluster_slots_assigned:5\r\ncluster_slots_ok:5\r\n", Danger},
		{"cluster_state:fail\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n", Danger}, // most masters are out of its reach
	} {
		if got := clustered(fields(c.info)); len(got) != 1 || got[0].Severity != c.want {
			t.Errorf("%q: %v", c.info, got)
		}
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	if got := (server{timeErr: refused, infoErr: errors.Join(refused)}).examine(); len(got) != 1 || got[0].Severity != Danger ||
		!strings.Contains(got[0].What, "connection refused") {
		t.Errorf("of a server that is gone it says %v", got)
	}
}
