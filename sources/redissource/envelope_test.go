package redissource

import (
	"encoding/hex"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/countoff/countoff/sources"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// born is a fixed instant with microseconds.
const born sources.Moment = 1_732_111_200_123_456

// envelopes are the golden ones: what each is here for is its file's name.
var envelopes = map[string]envelope{
	"empty": {},
	"plain": {
		id: "01j0000000000000000000000a", typ: "mail", key: "ann@example.com", born: born,
		payload: []byte(`{"to":"ann@example.com"}`),
	},
	"full": {
		id: "m-17", typ: "mail", key: "Zoë", born: born,
		headers: map[string]string{"trace": "4bf92f", "a": "", "": "nameless"},
		tries:   3, crashes: 300, firstError: "451 try later", unique: true,
		payload: []byte{0, 1, 2, 0xff, '\r', '\n'},
	},
	"before-1970": {id: "old", born: -1, payload: []byte("x")},
}

func TestEnvelopeGolden(t *testing.T) {
	for name, e := range envelopes {
		golden(t, "envelope-"+name, appendEnvelope(nil, &e))
	}
}

// golden compares got with the hexadecimal file testdata/name.hex. Bytes that
// change break every log that is in use: give the new layout a new version.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(file, []byte(hex.Dump(got)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != hex.Dump(got) {
		t.Errorf("%s: the bytes changed\ngot:\n%swant:\n%s", name, hex.Dump(got), want)
	}
}

func TestEnvelopeComesBack(t *testing.T) {
	for name, e := range envelopes {
		raw := string(appendEnvelope([]byte("before"), &e))[len("before"):]
		got, err := parseEnvelope(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !sameEnvelope(got, e) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, e)
		}
	}
}

func sameEnvelope(a, b envelope) bool {
	if string(a.payload) != string(b.payload) || !maps.Equal(a.headers, b.headers) {
		return false
	}
	a.payload, b.payload = nil, nil
	a.headers, b.headers = nil, nil
	return reflect.DeepEqual(a, b)
}

func TestEnvelopeRefuses(t *testing.T) {
	full := envelopes["full"]
	raw := string(appendEnvelope(nil, &full))
	for n := range len(raw) {
		e, err := parseEnvelope(raw[:n])
		if !errors.Is(err, errEnvelope) {
			t.Errorf("cut after %d bytes: %v, want errEnvelope", n, err)
		}
		if !reflect.DeepEqual(e, envelope{}) {
			t.Errorf("cut after %d bytes: half of it is taken for a task: %+v", n, e)
		}
	}
	for _, c := range []struct{ what, raw, want string }{
		{"one byte too many", raw + "x", "1 bytes too many"},
		{"another version", "\x01" + raw[1:], "version 1"},
		{"an unknown flag", raw[:1] + "\x87" + raw[2:], "unknown flags"},
		{"a length past the end", "\x02\x00\xff\x01", "255 bytes announced, 0 left"},
		{"a length over 64 bits", "\x02\x00" + strings.Repeat("\xff", 10), "no number"},
		{"more headers than bytes", "\x02\x04\x00\x00\x00\x00\xff\xff\xff\xff\x0f", "headers"},
		{"JSON", `{"to":"ann"}`, "version 123"},
	} {
		if _, err := parseEnvelope(c.raw); !errors.Is(err, errEnvelope) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want errEnvelope with %q", c.what, err, c.want)
		}
	}
}

func TestEnvelopeIsCheap(t *testing.T) {
	plain := envelopes["plain"]
	buf := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() { buf = appendEnvelope(buf[:0], &plain) }); n != 0 {
		t.Errorf("append allocates %v times, want 0", n)
	}
	headed := plain
	headed.headers = map[string]string{"b": "2", "a": "1"}
	if n := testing.AllocsPerRun(100, func() { buf = appendEnvelope(buf[:0], &headed) }); n != 0 {
		t.Errorf("append with headers allocates %v times, want 0", n)
	}
	raw := string(appendEnvelope(nil, &plain))
	if n := testing.AllocsPerRun(100, func() { _, _ = parseEnvelope(raw) }); n > 1 {
		t.Errorf("parse allocates %v times, want 1, the payload", n)
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, e := range envelopes {
		f.Add(string(appendEnvelope(nil, &e)))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := parseEnvelope(raw)
		if err != nil {
			if !errors.Is(err, errEnvelope) {
				t.Fatalf("%v is no errEnvelope", err)
			}
			return
		}
		again, err := parseEnvelope(string(appendEnvelope(nil, &e)))
		if err != nil || !sameEnvelope(e, again) {
			t.Fatalf("%+v came back as %+v, %v", e, again, err)
		}
	})
}

var letters = map[string]letter{
	"task": {
		position: 5021, attempts: 5, crashes: 1, at: born.Time(), reason: "550 no such user", firstError: "451 try later",
		body: "\x01 an envelope",
	},
	"raw": {position: 3, at: born.Time(), reason: `no field "to"`, raw: true, body: "not json\x00\xff"},
}

func TestLetterGolden(t *testing.T) {
	for name, l := range letters {
		golden(t, "letter-"+name, encodeLetter(&l))
	}
}

func TestLetterComesBack(t *testing.T) {
	for name, l := range letters {
		raw := string(encodeLetter(&l))
		got, err := parseLetter(raw)
		if err != nil || !got.at.Equal(l.at) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		got.at = l.at
		if got != l {
			t.Errorf("%s: got %+v, want %+v", name, got, l)
		}
		for n := range len(raw) - len(l.body) {
			if _, err := parseLetter(raw[:n]); !errors.Is(err, errEnvelope) {
				t.Errorf("%s cut after %d bytes: %v, want errEnvelope", name, n, err)
			}
		}
	}
}

func FuzzLetter(f *testing.F) {
	for _, l := range letters {
		f.Add(string(encodeLetter(&l)))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		l, err := parseLetter(raw)
		if err != nil {
			return
		}
		again, err := parseLetter(string(encodeLetter(&l)))
		if err != nil || !again.at.Equal(l.at) {
			t.Fatalf("%+v came back as %+v, %v", l, again, err)
		}
		again.at = l.at
		if again != l {
			t.Fatalf("%+v came back as %+v", l, again)
		}
	})
}
