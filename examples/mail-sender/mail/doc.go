// Package mail is the payload of the queue mail-sender: one mail as JSON.
//
//	{"to": "Ann <ann@example.com>", "subject": "hi", "text": "…"}
//
// It decodes and validates, says everything that is wrong at once, and names the
// key that keeps one recipient's mails in order. It knows nothing of queues and of
// SMTP.
package mail
