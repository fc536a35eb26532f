package service

import (
	"context"
	"errors"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	"github.com/countoff/countoff/examples/mail-sender/sender"
	"github.com/countoff/countoff/framework"
)

// A handler sends the mail that is a task's payload. A payload that is no mail and a
// mail that the server refused with 5xx become dead letters, whole, with the
// reason; everything else is tried again.
type handler struct{ sender *sender.Sender }

// Handle implements framework.Handler.
func (h *handler) Handle(ctx context.Context, t *framework.Task) error {
	m, err := mail.Decode(t.Payload)
	if err != nil {
		return framework.Dead(err)
	}
	err = h.sender.Send(ctx, t.ID, t.Born.Time(), m)
	if errors.Is(err, sender.ErrRefused) {
		return framework.Dead(err)
	}
	return err
}
