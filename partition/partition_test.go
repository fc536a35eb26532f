package partition_test

import (
	"strconv"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/partition"
)

// Where keys go must never change: every producer of a name, of whatever build,
// sends a key to the same partition. The values are xxhash64 with seed 0.
func TestOfIsFixed(t *testing.T) {
	for _, c := range []struct {
		hash partition.Hash
		key  string
		want partition.ID
	}{
		{partition.XXHash64, "", 0xef46db3751d8e999 % 256},
		{partition.XXHash64, "a", 0xd24ec4f1a98c6e5b % 256},
		{partition.XXHash64, "abc", 0x44bc2cf5ad770999 % 256},
		{partition.ByID, "0", 0},
		{partition.ByID, "1000", 1000 % 256},
		{partition.ByID, "18446744073709551615", 255},
	} {
		if got, err := c.hash.Of(c.key, 256); got != c.want || err != nil {
			t.Errorf("%s of %q: %v, %v, want %v", c.hash, c.key, got, err, c.want)
		}
	}
	if _, err := partition.ByID.Of("ann", 256); err == nil || !strings.Contains(err.Error(), "ann") {
		t.Errorf("id of ann: %v, want an error that names it", err)
	}
}

func TestDecimalReadsWhatStrconvReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(
			rapid.StringMatching(`[0-9]{0,22}`),
			rapid.Map(rapid.Uint64(), func(n uint64) string { return strconv.FormatUint(n, 10) }),
			rapid.String(),
		).Draw(t, "key")
		n, want := strconv.ParseUint(key, 10, 64)
		got, err := partition.ByID.Of(key, 1000)
		if (err != nil) != (want != nil) || err == nil && got != partition.ID(n%1000) {
			t.Fatalf("%q: %v, %v; strconv: %v, %v", key, got, err, n, want)
		}
	})
}

func TestOfPanicsWithoutPartitions(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	partition.Of("ann", 0)
}

func TestGrantAndTokenReadWhatTheyPrint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := partition.Grant{
			ID:    partition.ID(rapid.Int32Min(0).Draw(t, "id")),
			Epoch: partition.Epoch(rapid.Uint64Min(1).Draw(t, "epoch")),
		}
		if got, err := partition.ParseGrant(g.String()); got != g || err != nil {
			t.Fatalf("%v: %v, %v", g, got, err)
		}
		tok := partition.Token{Epoch: g.Epoch, Session: partition.Session(rapid.StringMatching(`[0-9a-f]{32}`).Draw(t, "session"))}
		if got, err := partition.ParseToken(tok.String()); got != tok || err != nil || tok.IsZero() {
			t.Fatalf("%v: %v, %v", tok, got, err)
		}
	})
	if s := (partition.Grant{ID: 17, Epoch: 4021}).String(); s != "17@4021" {
		t.Errorf("prints %s", s)
	}
	if s := (partition.Token{Epoch: 4021, Session: "5e55"}).String(); s != "4021:5e55" {
		t.Errorf("prints %s", s)
	}
}

func TestUnreadableGrantsAndTokens(t *testing.T) {
	for _, s := range []string{"", "17", "17@", "@1", "17@0", "-1@5", "x@5", "17@x", "99999999999@1"} {
		if g, err := partition.ParseGrant(s); err == nil {
			t.Errorf("grant %q: %v", s, g)
		}
	}
	for _, s := range []string{"", "1", "1:", ":a", "0:a", "x:a"} {
		if tok, err := partition.ParseToken(s); err == nil {
			t.Errorf("token %q: %v", s, tok)
		}
	}
	if !(partition.Token{}).IsZero() {
		t.Error("the zero token is somebody's")
	}
}

func TestConfig(t *testing.T) {
	c := partition.Config{Units: []string{"b", "a", "b"}}.WithDefaults()
	if err := c.Validate(); err != nil || c.Total != 256 || c.Hash != partition.XXHash64 || len(c.Units) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	ids := c.IDs()
	if len(ids) != 258 || ids[255] != 255 || ids[256] != partition.FirstUnit || ids[257].IsUnit() == ids[255].IsUnit() {
		t.Errorf("ids %v", ids)
	}
	if c.Unit(partition.FirstUnit) != "a" || c.Unit(partition.FirstUnit+1) != "b" || c.Unit(partition.FirstUnit+2)+c.Unit(0) != "" {
		t.Errorf("the names of the units are wrong: %q", c.Units)
	}
	if (partition.Config{}).UnitsHash() != "-" || c.UnitsHash() == "-" ||
		c.UnitsHash() == (partition.Config{Units: []string{"a"}}).UnitsHash() {
		t.Error("lists of units are not told apart")
	}
	for _, bad := range []partition.Config{
		{Total: -1, Hash: partition.ByID}, {Total: partition.MaxTotal + 1, Hash: partition.ByID}, {Total: 1, Hash: "md5"},
		{Total: 1, Hash: partition.ByID, Units: []string{"a", "b\nc"}}, // would be one list with b and c
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	for _, good := range []partition.Config{{Total: 1, Hash: partition.Murmur2}, {Total: partition.MaxTotal, Hash: partition.ByID}} {
		if err := good.Validate(); err != nil {
			t.Error(err)
		}
	}
	if err := (partition.Config{Total: -1, Hash: "md5"}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "md5") || !strings.Contains(err.Error(), "-1") {
		t.Errorf("not all faults at once: %v", err)
	}
}

func TestCheckUnit(t *testing.T) {
	for _, good := range []string{"a", " with spaces\tand \xff ", strings.Repeat("x", 1<<16)} {
		if err := partition.CheckUnit(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "two\nlines", "cr\r", "nul\x00", strings.Repeat("x", 1<<16+1)} {
		if partition.CheckUnit(bad) == nil {
			t.Errorf("%.40q is taken", bad)
		}
	}
}

func TestCheckPeer(t *testing.T) {
	for _, good := range []string{
		"ann", "mail-sender-7d9f8b6c5-x2x4z", "vm-17.eu.example.com", "WIN-3K2_A", "0190a3c1-7b2e-7cc0-9f5e-2a6f0c1d4e11",
		"10.0.0.7:8080", "[::1]:8080", "eu/ann@host#2", "Ann's Mac", "köln", "東京-1", "__", strings.Repeat("x", 255),
	} {
		if err := partition.CheckPeer(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "_", strings.Repeat("x", 256), strings.Repeat("é", 128), "two\nlines", "tab\t", "nul\x00", "\x1b[2J", "del\x7f", "c1\u009b31m",
		"\u202eright to left", "zero\u200bwidth", "line\u2028", "no\u00a0break", "hangul\u3164", "braille\u2800", "joined\u034f", "chosen\ufe0f", "\xff", " ann", "ann ",
	} {
		if err := partition.CheckPeer(bad); err == nil || len(err.Error()) > 400 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"mail-sender", "a", "A.b_c-9", strings.Repeat("x", 64)} {
		if err := partition.CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "a b", "{a}", "a:b", "ä", "a\n", strings.Repeat("x", 65)} {
		if partition.CheckName(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestUnitsHashTellsListsApart(t *testing.T) {
	if a, b := (partition.Config{Units: []string{"a", "bc"}}).UnitsHash(), (partition.Config{Units: []string{"ab", "c"}}).UnitsHash(); a == b {
		t.Error("two lists, one hash")
	}
}
