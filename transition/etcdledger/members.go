package etcdledger

import (
	"cmp"
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ask makes a call, and once more where a member of etcd is silent for half of the time that is left: a member that stands
// still (its machine, or its disk) keeps its connections, and gRPC, which takes the members in turn, needs 12 s to notice.
// Calls that it gets meanwhile would fail, and leases end. A third time is for where others call and it is the same one's turn
// again. The first answer counts, a fault only if nobody is left who may answer: the member that is asked beside may be the
// one that ends. A transaction that two members carry out must find the second time that what its guards compare has changed,
// or change nothing more.
func ask[T any](ctx context.Context, client *clientv3.Client, call func(context.Context) (T, error)) (T, error) {
	end, ends := ctx.Deadline()
	if !ends || len(client.Endpoints()) < 2 {
		return call(ctx)
	}
	const most = 3
	type answer struct {
		resp T
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	answers := make(chan answer, most)
	sent, waiting := 0, 0
	var late <-chan time.Time
	send := func() {
		asked.Go(func() {
			resp, err := call(ctx)
			answers <- answer{resp, err}
		})
		sent++
		waiting++
		late = nil
		if sent < most {
			late = time.After(time.Until(end) / 2)
		}
	}
	send()
	var fault error // the first
	for {
		select {
		case a := <-answers:
			waiting--
			fault = cmp.Or(fault, a.err)
			switch {
			case a.err == nil:
				return a.resp, nil
			case waiting == 0:
				return a.resp, fault
			}
		case <-late:
			send()
		}
	}
}

// txn makes a guarded transaction.
func (l *Ledger) txn(ctx context.Context, guards []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	return ask(ctx, l.client, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.client.Txn(ctx).If(guards...).Then(then...).Else(otherwise...).Commit()
	})
}
