package doctor

import (
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
