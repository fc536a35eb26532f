// Package natstest gives tests a NATS with JetStream on a free port of loopback: inside the
// process, alone or as a cluster, or as a process of its own that can be killed.
package natstest
