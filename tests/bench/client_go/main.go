// One load of client-go, as client_loads.py is one of ours, with a round for each line of the
// standard input: client_go MEASURE NAMESRV TOPIC MESSAGES
package main

import (
	"bufio"
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
	// A round of sends lasts so long before it is measured.
	lead = 500 * time.Millisecond
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

// figures are those of the measured time: messages, seconds and CPU seconds.
type figures struct {
	messages   int64
	took, used float64
}

func (found figures) print() {
	fmt.Printf("{\"messages\": %d, \"seconds\": %f, \"cpu\": %f, \"failed\": %d}\n",
		found.messages, found.took, found.used, atomic.LoadInt64(&failed))
}

// window sleeps until the measured time begins and until it ends.
func window(begin, end time.Time) figures {
	time.Sleep(time.Until(begin))
	first, used, before := time.Now(), cpu(), atomic.LoadInt64(&sent)
	time.Sleep(time.Until(end))
	return figures{atomic.LoadInt64(&sent) - before, time.Since(first).Seconds(), cpu() - used}
}

func produce(kind, namesrv, topic string, length time.Duration) {
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
	atomic.StoreInt64(&failed, 0)
	begin := time.Now().Add(lead)
	end := begin.Add(length)
	found := make(chan figures)
	go func() { found <- window(begin, end) }()
	if strings.HasPrefix(kind, "sync") {
		threads := waiters
		if kind == "sync1" {
			threads = 1
		}
		sendAndWait(made, messages, threads, end)
	} else {
		sendSoon(made, messages, most, end)
	}
	(<-found).print()
	must(made.Shutdown())
}

func sendAndWait(made rocketmq.Producer, messages func() []*primitive.Message, threads int, end time.Time) {
	var running sync.WaitGroup
	running.Add(threads)
	for i := 0; i < threads; i++ {
		go func() {
			defer running.Done()
			for time.Now().Before(end) {
				if _, err := made.SendSync(context.Background(), messages()...); err != nil {
					atomic.AddInt64(&failed, 1)
				} else {
					atomic.AddInt64(&sent, 1)
				}
			}
		}()
	}
	running.Wait()
}

func sendSoon(made rocketmq.Producer, messages func() []*primitive.Message, most int, end time.Time) {
	room := make(chan struct{}, most)
	for time.Now().Before(end) {
		room <- struct{}{}
		batch := messages()
		err := made.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				atomic.AddInt64(&failed, 1)
			} else {
				atomic.AddInt64(&sent, int64(len(batch)))
			}
			<-room
		}, batch...)
		must(err)
	}
	// All answers are here when the room can be filled.
	for i := 0; i < most; i++ {
		room <- struct{}{}
	}
}

// read consumes the messages again and again for a time.
func read(namesrv, topic string, messages int64, size int, length time.Duration) {
	var sums figures
	for until, isFirst := time.Now().Add(length), true; isFirst || time.Now().Before(until); isFirst = false {
		found := consume(namesrv, topic, messages, size)
		sums = figures{sums.messages + found.messages, sums.took + found.took, sums.used + found.used}
	}
	sums.print()
}

func consume(namesrv, topic string, messages int64, size int) figures {
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
	must(made.Shutdown())
	return figures{messages - firstCount, last.Sub(first).Seconds(), lastCPU - firstCPU}
}

func main() {
	rlog.SetLogLevel("fatal")
	args := os.Args[1:]
	messages, err := strconv.ParseInt(args[3], 10, 64)
	must(err)
	size := 1
	if args[0] == "consume_batch" {
		size = 32
	}
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		if strings.HasPrefix(args[0], "consume") {
			read(args[1], args[2], messages, size, seconds(asked.Text()))
		} else {
			produce(args[0], args[1], args[2], seconds(asked.Text()))
		}
	}
}
