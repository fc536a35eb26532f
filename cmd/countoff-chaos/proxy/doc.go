// Package proxy is a small TCP proxy that can be cut, delayed or silenced while it
// runs: the network of one peer.
package proxy
