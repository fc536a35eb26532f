package redissource

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

func TestIngressFields(t *testing.T) {
	layout := partition.Config{Total: 1}.WithDefaults()
	fields := Ingress{List: "l", KeyField: "to", IDField: "id", TypeField: "kind", Type: "mail"}
	fails := errors.New("no recipient")
	byFunc := Ingress{List: "l", Key: func(line []byte) (string, error) {
		if len(line) == 0 {
			return "", fails
		}
		return strings.ToLower(string(line)), nil
	}}
	for _, c := range []struct {
		what    string
		unit    Ingress
		line    string
		want    envelope
		problem string
	}{
		{"all fields", fields, `{"to":"ann","id":"m1","kind":"sms"}`, envelope{id: "m1", typ: "sms", key: "ann"}, ""},
		{"numbers", fields, `{"to":17,"id":-1.5e3}`, envelope{id: "-1.5e3", typ: "mail", key: "17"}, ""},
		{"escapes", fields, `{"to":"a\u00e9\n"}`, envelope{id: "l-5-9", typ: "mail", key: "aé\n"}, ""},
		{"empty id", fields, `{"to":"ann","id":""}`, envelope{id: "l-5-9", typ: "mail", key: "ann"}, ""},
		{"null id", fields, `{"to":"ann","id":null}`, envelope{id: "l-5-9", typ: "mail", key: "ann"}, ""},
		{"not JSON", fields, `hello`, envelope{}, "not a JSON object"},
		{"an empty line", fields, ``, envelope{}, "not a JSON object"},
		{"an array", fields, `["ann"]`, envelope{}, "not a JSON object: array"},
		{"null", fields, `null`, envelope{}, "not a JSON object"},
		{"no key", fields, `{"id":"m1"}`, envelope{}, `field "to", which is the key, is missing or empty`},
		{"an empty key", fields, `{"to":""}`, envelope{}, `field "to", which is the key, is missing or empty`},
		{"a key of another kind", fields, `{"to":["ann"]}`, envelope{}, `field "to" is neither`},
		{"an id of another kind", fields, `{"to":"ann","id":{}}`, envelope{}, `field "id" is neither`},
		{"a type of another kind", fields, `{"to":"ann","kind":true}`, envelope{}, `field "kind" is neither`},
		{"a function", byFunc, `ANN`, envelope{id: "l-5-9", key: "ann"}, ""},
		{"a function that fails", byFunc, ``, envelope{}, "no recipient"},
		{"nines", fields, `{"to":9,"id":9,"kind":95}`, envelope{id: "9", typ: "95", key: "9"}, ""},
		{"only an id", Ingress{List: "l", IDField: "id", Type: "mail"}, `{"id":"m1","":7}`, envelope{id: "m1", typ: "mail"}, ""},
		{"only a type", Ingress{List: "l", TypeField: "kind"}, `{"kind":"sms","":7}`, envelope{id: "l-5-9", typ: "sms"}, ""},
		{"an id and a function", Ingress{List: "l", IDField: "id", Key: func([]byte) (string, error) { return "ann", nil }},
			`{"id":"m1"}`, envelope{id: "m1", key: "ann"}, ""},
		{"an id that is none and a function", Ingress{List: "l", IDField: "id", Key: func([]byte) (string, error) { return "ann", nil }},
			`{"id":[]}`, envelope{}, `field "id" is neither`},
		{"no key wanted", Ingress{List: "l"}, "anything \x00", envelope{id: "l-5-9"}, ""},
	} {
		r := c.unit.route(c.line, 5, 9, layout, born.Time())
		if c.problem != "" {
			l, err := parseLetter(string(r.body))
			if err != nil || r.dead == "" || !l.raw || l.body != c.line || !strings.Contains(l.reason, c.problem) || l.position != 9 {
				t.Errorf("%s: %+v, %v", c.what, l, err)
			}
			continue
		}
		c.want.born, c.want.payload = born, []byte(c.line)
		e, err := parseEnvelope(string(r.body))
		if err != nil || r.dead != "" || !sameEnvelope(e, c.want) {
			t.Errorf("%s: %+v, %v", c.what, e, err)
		}
	}
}

func TestIngressRefusesBadConfiguration(t *testing.T) {
	client := redistest.New(t)
	key := func([]byte) (string, error) { return "", nil }
	_, err := New(client, "n", Config{Ingress: []Ingress{
		{}, {List: "a}b"}, {List: "{}x"}, {List: "o", Oldest: 7}, {List: "k", Key: key, KeyField: "to"}, {List: "t"}, {List: "t"},
	}})
	for _, want := range []string{"without a List", `"a}b"`, `"{}x"`, "Oldest 7", "ingress k: both", "ingress t: listed twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %s: %v", want, err)
		}
	}
	for list, want := range map[string]string{"mail:inbox": "{mail:inbox}", "x{tag}:inbox": "x{tag}:inbox"} {
		if tag, err := ingressTag(list); err != nil || tag != want || redistest.Slot(tag+":plan") != redistest.Slot(list) {
			t.Errorf("%s: %q, %v", list, tag, err)
		}
	}
}

// A list that is called like a partition of the name, or like something of one, would share its fence, and one that is
// called like a key of its ledger would be that.
func TestAnIngressIsNotCalledLikeAPartition(t *testing.T) {
	_, client := redistest.Mini(t)
	for list, ok := range map[string]bool{
		"mail:0": false, "mail:3": false, "{mail:3}:x": false, "mail:in": true, "mail": true, "post:0": true, "{mail}:in": true,
		"{mail}:config": false, "{mail}:history": false, CancelKey("mail"): false, "{post}:config": true,
	} {
		_, err := New(client, "mail", Config{Ingress: []Ingress{{List: list}}})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "another name for the list") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// Lists that share a key would be fenced by each other, or hold what an owner writes of the other.
func TestIngressesThatShareAKey(t *testing.T) {
	for _, lists := range [][]string{{"a", "{a}"}, {"a", "{a}:fence"}, {"a", "{a}:plan"}, {"x{a}", "x{a}:fence"}} {
		for range 2 {
			err := CheckIngress("mail", lists)
			if err == nil || !strings.Contains(err.Error(), "another name for one of the lists") || !strings.Contains(err.Error(), "ingress "+lists[0]) {
				t.Errorf("%s: %v", lists, err)
			}
			slices.Reverse(lists)
		}
	}
	if err := CheckIngress("mail", []string{"a", "b{a}", "{a}b", "a:fence", "{b}:fence"}); err != nil {
		t.Error(err)
	}
}
