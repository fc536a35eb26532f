// Package sender sends one mail over SMTP and says what its failure means: refused
// for good, or worth another try. It keeps connections open between mails. It
// knows nothing of queues.
package sender
