// One load of client-go, as client_loads.py is one of ours:
// client_go MEASURE NAMESRV TOPIC WARM_SECONDS SECONDS MESSAGES
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	asyncMost = 1024
	batches   = 64
	waiters   = 64
	workers   = 20
)

var (
	body         = bytes.Repeat([]byte("x"), 128)
	sent, failed int64
)

func cpu() float64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func seconds(text string) time.Duration {
	value, err := strconv.ParseFloat(text, 64)
	must(err)
	return time.Duration(value * float64(time.Second))
}

func report(messages int64, took, used float64) {
	fmt.Printf("{\"messages\": %d, \"seconds\": %f, \"cpu\": %f, \"failed\": %d}\n", messages, took, used, failed)
	os.Exit(0)
}

func produce(kind, namesrv, topic string, warm, length time.Duration) {
	made, err := rocketmq.NewProducer(producer.WithNameServer([]string{namesrv}), producer.WithGroupName("client_bench_go"))
	must(err)
	must(made.Start())
	size, most := 1, asyncMost
	if strings.HasPrefix(kind, "batch") {
		size, err = strconv.Atoi(kind[5:])
		must(err)
		most = batches
	}
	messages := func() []*primitive.Message {
		found := make([]*primitive.Message, size)
		for i := range found {
			found[i] = primitive.NewMessage(topic, body)
		}
		return found
	}
	_, err = made.SendSync(context.Background(), messages()...)
	must(err)
	begin := time.Now().Add(warm)
	end := begin.Add(length)
	go func() {
		time.Sleep(time.Until(begin))
		begin = time.Now()
		used, before := cpu(), atomic.LoadInt64(&sent)
		time.Sleep(time.Until(end))
		report(atomic.LoadInt64(&sent)-before, time.Since(begin).Seconds(), cpu()-used)
	}()
	if strings.HasPrefix(kind, "sync") {
		threads := waiters
		if kind == "sync1" {
			threads = 1
		}
		for i := 0; i < threads; i++ {
			go func() {
				for {
					if _, err := made.SendSync(context.Background(), messages()...); err != nil {
						atomic.AddInt64(&failed, 1)
					} else {
						atomic.AddInt64(&sent, 1)
					}
				}
			}()
		}
		select {}
	}
	room := make(chan struct{}, most)
	for {
		room <- struct{}{}
		err := made.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				atomic.AddInt64(&failed, 1)
			} else {
				atomic.AddInt64(&sent, int64(size))
			}
			<-room
		}, messages()...)
		must(err)
	}
}

func consume(namesrv, topic string, messages int64, size int, isMeasured bool) {
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(fmt.Sprintf("client_bench_go_%d", time.Now().UnixNano())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeGoroutineNums(workers),
		consumer.WithConsumeMessageBatchMaxSize(size))
	must(err)
	var count, firstCount int64
	var first, last time.Time
	var firstCPU, lastCPU float64
	var lock sync.Mutex
	done := make(chan struct{})
	must(made.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		if count == 0 {
			first, firstCPU, firstCount = time.Now(), cpu(), int64(len(batch))
		}
		isOver := count >= messages
		count += int64(len(batch))
		if count >= messages && !isOver {
			last, lastCPU = time.Now(), cpu()
			close(done)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(made.Start())
	<-done
	if isMeasured {
		report(messages-firstCount, last.Sub(first).Seconds(), lastCPU-firstCPU)
	}
	made.Shutdown()
}

func main() {
	rlog.SetLogLevel("fatal")
	args := os.Args[1:]
	if !strings.HasPrefix(args[0], "consume") {
		produce(args[0], args[1], args[2], seconds(args[3]), seconds(args[4]))
		return
	}
	size := 1
	if args[0] == "consume_batch" {
		size = 32
	}
	messages, err := strconv.ParseInt(args[5], 10, 64)
	must(err)
	warmUntil := time.Now().Add(seconds(args[3]))
	for isCold := true; isCold; isCold = time.Now().Before(warmUntil) {
		consume(args[1], args[2], messages, size, false)
	}
	consume(args[1], args[2], messages, size, true)
}
