// Command go_member is a member of a group, with Apache's Go client.
//
//	go_member NAMESRV TOPIC WORK_MS
//
// The group is named as its topic. It tells, a line each with the time in ms: "held TOPIC MS QUEUES"
// when the queues that it has change, "begin" and "end TOPIC MS BROKER QUEUE OFFSET TRIES BODY" of each
// message. It leaves at the end of its input. java/GroupMember.java is the same in Java.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var output sync.Mutex

func tell(words ...string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.Join(words, " "))
}

func now() string {
	return strconv.FormatInt(time.Now().UnixMilli(), 10)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	namesrv, topic := os.Args[1], os.Args[2]
	work, err := strconv.Atoi(os.Args[3])
	must(err)
	var last string
	shares := func(group, id string, all []*primitive.MessageQueue, ids []string) []*primitive.MessageQueue {
		mine := consumer.AllocateByAveragely(group, id, all, ids)
		if len(all) == 0 || all[0].Topic != topic {
			return mine
		}
		names := []string{}
		for _, queue := range mine {
			names = append(names, fmt.Sprintf("%s:%d", queue.BrokerName, queue.QueueId))
		}
		sort.Strings(names)
		if told := strings.Join(names, ","); told != last {
			last = told
			tell("held", topic, now(), told)
		}
		return mine
	}
	member, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(topic),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithStrategy(shares))
	must(err)
	must(member.Subscribe(topic, consumer.MessageSelector{}, func(
		_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			place := []string{message.Queue.BrokerName, strconv.Itoa(message.Queue.QueueId),
				strconv.FormatInt(message.QueueOffset, 10), strconv.Itoa(int(message.ReconsumeTimes)),
				string(message.Body)}
			tell(append([]string{"begin", topic, now()}, place...)...)
			time.Sleep(time.Duration(work) * time.Millisecond)
			tell(append([]string{"end", topic, now()}, place...)...)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(member.Start())
	tell("started", topic)
	_, err = io.Copy(io.Discard, os.Stdin)
	must(err)
	must(member.Shutdown())
	tell("left", topic)
}
