package mail_test

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/examples/mail-sender/mail"
)

func TestDecode(t *testing.T) {
	m, err := mail.Decode([]byte(`{"to":["Ann <Ann@Example.com>","bob@example.com"],"subject":"hi","text":"there","headers":{"X-Tag":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Key(); got != "ann@example.com" {
		t.Errorf("key %q, want the first address, lower-cased and bare", got)
	}
	to, err := m.To.Parsed()
	if err != nil || len(to) != 2 {
		t.Errorf("recipients %v, %v", to, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		payload string
		want    []string // every fault is named, not only the first
	}{
		{``, []string{"ends too early"}},
		{`hello`, []string{"not a mail in JSON", "invalid character 'h'"}},
		{`{"to":"a@b.example","text":"x"} {}`, []string{"follows the JSON object"}},
		{`{"to":"a@b.example","text":"x","attachments":[]}`, []string{`unknown field "attachments"`}},
		{`{"to":7,"text":"x"}`, []string{"want a string or an array"}},
		{`{}`, []string{"to: want at least one address", "want a body"}},
		{`{"to":"nobody","from":"a@b.example, c@d.example","subject":"a\r\nBcc: x@y.example","text":"x","headers":{"a b":"c","Bcc":"x","X-A":"1\n2"}}`,
			[]string{`to: "nobody"`, "from: want one address", "subject: must be one line", `"a b" is no header name`, "Bcc is set by", "X-A: must be one line"}},
		{`{"to":"a@b.example","cc":"@","bcc":"@","reply_to":"@","text":"x"}`, []string{"cc:", "bcc:", "reply_to:"}},
	} {
		_, err := mail.Decode([]byte(c.payload))
		if err == nil {
			t.Errorf("%s: no error", c.payload)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n%v\ndoes not say %q", c.payload, err, want)
			}
		}
	}
}

func TestKeyOf(t *testing.T) {
	for payload, want := range map[string]string{
		`{"to":"ann@example.com","attachments":[]}`: "ann@example.com",
		`{"to":["Bob <BOB@example.com>"]}`:          "bob@example.com",
		`not json`:                                  "",
		`{"to":""}`:                                 "",
		`{"to":"nobody"}`:                           "",
		`{}`:                                        "",
	} {
		if got := mail.KeyOf([]byte(payload)); got != want {
			t.Errorf("KeyOf(%s) = %q, want %q", payload, got, want)
		}
	}
}

func TestErrorsAreShort(t *testing.T) {
	_, err := mail.Decode([]byte(strings.Repeat("x", 1<<20)))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("an error of %d bytes for a payload of a megabyte", len(err.Error()))
	}
	// The cut is not in the middle of a character.
	_, err = mail.Decode([]byte(`{"to":"` + strings.Repeat("x", 59) + `éé","text":"x"}`))
	if err == nil || !strings.Contains(err.Error(), `x…"`) {
		t.Errorf("of a long address: %v", err)
	}
}
