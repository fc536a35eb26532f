// Package demo is a play in one act: a queue of mails, peers that come, leave and
// are killed, and an audience that counts.
//
// Nobody is believed. What was delivered, twice or out of order comes from the SMTP
// server that received it; who owned what and what was open when a peer died comes
// from an observer of the store. The peers are processes of their own, so that a
// kill is a kill.
package demo
