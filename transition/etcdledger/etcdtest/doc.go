// Package etcdtest gives tests an etcd of one member on a free port of loopback: inside the
// process, or as a process of its own that can be killed.
package etcdtest
