// Package redisserver runs redis-server on ports of loopback: for tests, and for programs that
// play with stores and break them.
package redisserver
