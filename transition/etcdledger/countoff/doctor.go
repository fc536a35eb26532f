package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/cmd/countoff/doctor"
)

// Examine implements command.Store: the alarms, and every member of the URL by itself.
func (s store) Examine(ctx context.Context) ([]doctor.Finding, error) {
	raised := make(map[string]bool)
	found := s.members(ctx, raised)
	list, err := s.AlarmList(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed):
		found = append(found, doctor.Finding{Check: "etcd", Severity: doctor.Note, What: fmt.Sprintf("its alarms are not told: %v", err),
			Risk: "whether it is full could not be looked at", Do: "let a user with more rights look"})
	case err != nil:
		return nil, err
	default:
		for _, alarm := range list.Alarms {
			raised[plain(alarm.String())] = true
		}
	}
	for _, alarm := range slices.Sorted(maps.Keys(raised)) {
		found = append(found, alarmed(alarm))
	}
	return found, nil
}

// alarmed says what an alarm, as etcd prints it, means.
func alarmed(alarm string) doctor.Finding {
	f := doctor.Finding{Check: "etcd", Severity: doctor.Danger, What: "an alarm is raised: " + alarm,
		Risk: "it refuses every write: no lease is renewed, and all peers stop", Do: "etcdctl compact, defrag, alarm disarm; and --auto-compaction-retention"}
	if strings.Contains(alarm, pb.AlarmType_CORRUPT.String()) {
		f.Risk = "the data of members differ: all of them refuse every write, and all peers stop; what the one that differs answers, and has answered, may be wrong"
		f.Do = "etcdctl endpoint hashkv --cluster shows which one differs: member remove, start it anew with an empty folder as a member that was added, and alarm disarm"
	}
	return f
}

// plain returns what etcd prints with single spaces: how many there are differs by version and build.
func plain(printed string) string { return strings.Join(strings.Fields(printed), " ") }

// members examines the members that the URL names. Each tells the alarms of all, which it adds to raised.
func (s store) members(ctx context.Context, raised map[string]bool) []doctor.Finding {
	const patience = 2 * time.Second
	var found []doctor.Finding
	reached, leader := 0, uint64(0)
	for _, endpoint := range s.Endpoints() {
		one, cancel := context.WithTimeout(ctx, patience)
		member, err := s.Status(one, endpoint)
		cancel()
		if err != nil {
			found = append(found, doctor.Finding{Check: "etcd", Severity: doctor.Warning, What: fmt.Sprintf("a member does not tell how it is: %v", err),
				Risk: "with less than a majority no lease is renewed, and all peers stop", Do: "start it, or mend the way to it", Node: endpoint})
			continue
		}
		reached++
		leader = max(leader, member.Leader)
		for _, wrong := range member.Errors {
			if strings.Contains(wrong, "alarm:") {
				raised[plain(wrong)] = true
				continue
			}
			found = append(found, doctor.Finding{Check: "etcd", Severity: doctor.Warning, What: wrong, Node: endpoint})
		}
		if quota := member.DbSizeQuota; quota > 0 && member.DbSize > quota/4*3 {
			found = append(found, doctor.Finding{Check: "etcd", Severity: doctor.Warning,
				What: fmt.Sprintf("its data take %d of %d MiB", member.DbSize>>20, quota>>20),
				Risk: "when they take all it refuses every write, and all peers stop", Do: "compact and defragment, and --auto-compaction-retention", Node: endpoint})
		}
	}
	if reached > 0 {
		found = append(found, s.cluster(ctx, reached, leader))
	}
	return found
}

// cluster examines how many members there are.
func (s store) cluster(ctx context.Context, reached int, leader uint64) doctor.Finding {
	if leader == 0 {
		return doctor.Finding{Check: "etcd", Severity: doctor.Danger, What: "no leader is known",
			Risk: "nothing is written: no lease is renewed, and all peers stop", Do: "bring a majority of the members up, and together"}
	}
	all, err := s.MemberList(ctx, clientv3.WithSerializable())
	switch {
	case err != nil:
		return doctor.Finding{Check: "etcd", Severity: doctor.Note, What: fmt.Sprintf("its members are not told: %v", err)}
	case len(all.Members) == 1:
		return doctor.Finding{Check: "etcd", Severity: doctor.Warning, What: "it has one member",
			Risk: "while that is away all peers stop; if its disk is lost, so are the epochs", Do: "three or five members on machines of their own"}
	}
	return doctor.Finding{Check: "etcd", Severity: doctor.Fine, What: fmt.Sprintf("%d members, %d of the URL reached, with a leader", len(all.Members), reached)}
}
