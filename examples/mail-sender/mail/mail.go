package mail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	netmail "net/mail"
	"slices"
	"strings"
)

// Type is the task type of a mail.
const Type = "mail"

// A Mail is one payload, decoded and valid.
type Mail struct {
	ID      string            `json:"id,omitempty"`       // optional; becomes the task's id, so that the same mail queued twice is one mail
	To      Addresses         `json:"to"`                 // at least one
	Cc      Addresses         `json:"cc,omitempty"`       // copies
	Bcc     Addresses         `json:"bcc,omitempty"`      // copies that the others do not see
	From    string            `json:"from,omitempty"`     // default: the sender's configured address
	ReplyTo string            `json:"reply_to,omitempty"` // where answers go, if not to From
	Subject string            `json:"subject"`
	Text    string            `json:"text,omitempty"` // plain body; Text or HTML must be there
	HTML    string            `json:"html,omitempty"` // with Text too: alternatives
	Headers map[string]string `json:"headers,omitempty"`
}

// Addresses is a list of mail addresses, written in JSON as one string
// ("ann@example.com, Bob <bob@example.com>") or as an array of such strings.
type Addresses []string

// UnmarshalJSON reads one string or an array of strings.
func (a *Addresses) UnmarshalJSON(b []byte) error {
	*a = nil
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*a = Addresses{s}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.New("want a string or an array of strings")
	}
	*a = list
	return nil
}

// Parsed returns the addresses one by one, or an error that names the first text
// that is none.
func (a Addresses) Parsed() ([]*netmail.Address, error) {
	var out []*netmail.Address
	for _, s := range a {
		list, err := netmail.ParseAddressList(s)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", clip(s), err)
		}
		out = append(out, list...)
	}
	return out, nil
}

// own are the headers that a mail gets from its other fields: setting them by
// Headers would contradict those or break the message apart.
var own = []string{
	"bcc", "cc", "content-transfer-encoding", "content-type", "date", "from", "message-id",
	"mime-version", "received", "reply-to", "return-path", "sender", "subject", "to",
}

// Decode reads a payload. The error says everything that is wrong with it: a
// payload that is refused once is refused always.
//
// Unknown fields are refused. Dropping them would send a mail without, say, the
// attachments its writer believed in.
func Decode(payload []byte) (Mail, error) {
	var m Mail
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return Mail{}, fmt.Errorf("mail: not a mail in JSON: %w", unexpectedEnd(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Mail{}, errors.New("mail: text follows the JSON object")
	}
	if err := m.Validate(); err != nil {
		return Mail{}, err
	}
	return m, nil
}

// Validate says all that is wrong with m.
func (m Mail) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("mail: "+format, args...)) }

	to, err := m.To.Parsed()
	switch {
	case err != nil:
		fault("to: %w", err)
	case len(to) == 0:
		fault("to: want at least one address")
	}
	for _, f := range []struct {
		name   string
		list   Addresses
		single bool
	}{{"cc", m.Cc, false}, {"bcc", m.Bcc, false}, {"from", one(m.From), true}, {"reply_to", one(m.ReplyTo), true}} {
		switch parsed, err := f.list.Parsed(); {
		case err != nil:
			fault("%s: %w", f.name, err)
		case f.single && len(parsed) > 1:
			fault("%s: want one address, got %d", f.name, len(parsed))
		}
	}
	if m.Text == "" && m.HTML == "" {
		fault("text or html: want a body")
	}
	if strings.ContainsAny(m.Subject, "\r\n") {
		fault("subject: must be one line")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		switch {
		case !isToken(name):
			fault("headers: %q is no header name", clip(name))
		case slices.Contains(own, strings.ToLower(name)):
			fault("headers: %s is set by the mail's other fields", name)
		case strings.ContainsAny(m.Headers[name], "\r\n"):
			fault("headers: %s: must be one line", name)
		}
	}
	return errors.Join(errs...)
}

// Key returns what keeps mails in order: the first recipient's bare address,
// lower-cased, so that "Ann <Ann@Example.com>" and "ann@example.com" are one.
func (m Mail) Key() string {
	to, err := m.To.Parsed()
	if err != nil || len(to) == 0 {
		return ""
	}
	return strings.ToLower(to[0].Address)
}

// KeyOf returns the key of a payload, or "" (unordered) if it is no mail: the
// handler will make a dead letter of it, wherever it runs.
func KeyOf(payload []byte) string {
	var m struct {
		To Addresses `json:"to"`
	}
	if json.Unmarshal(payload, &m) != nil {
		return ""
	}
	return Mail{To: m.To}.Key()
}

func one(s string) Addresses {
	if s == "" {
		return nil
	}
	return Addresses{s}
}

// isToken reports whether s may be a header's name (RFC 5322: printable, no colon).
func isToken(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == ':' {
			return false
		}
	}
	return s != ""
}

// unexpectedEnd gives the decoder's bare "EOF" a meaning.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

// clip keeps errors, which end up in dead letters and logs, short.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // not in the middle of a character
}
