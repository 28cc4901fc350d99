// Enqueues one job: enqueue.go URL PAYLOAD KEY. Prints the API's answer.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const attempts = 8

// enqueue stores the job and returns the answer; it is safe to call again with the same key.
func enqueue(url, payload, key string) (string, error) {
	api := os.Getenv("HOOK_API_URL")
	if api == "" {
		api = "http://127.0.0.1:3300"
	}
	quoted, err := json.Marshal(url)
	if err != nil {
		return "", err
	}
	// The payload is text already and goes in as it is: these bytes are what the receiver gets.
	body := fmt.Sprintf(`{"url": %s, "payload": %s}`, quoted, payload)
	client := http.Client{Timeout: 30 * time.Second}
	for attempt := 1; attempt <= attempts; attempt++ {
		request, err := http.NewRequest(http.MethodPost, api+"/v1/jobs", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		request.Header.Set("content-type", "application/json")
		request.Header.Set("idempotency-key", key)
		if token := os.Getenv("HOOK_API_TOKEN"); token != "" {
			request.Header.Set("authorization", "Bearer "+token)
		}
		pause := time.Duration(attempt) * time.Second
		// Without an answer nobody knows whether the job was stored; the key makes repeating safe.
		if answer, err := client.Do(request); err == nil {
			text, readError := io.ReadAll(answer.Body)
			answer.Body.Close()
			retryable := answer.StatusCode == 429 || answer.StatusCode == 503
			if answer.StatusCode < 300 && readError == nil {
				return string(text), nil
			}
			if answer.StatusCode >= 300 && !retryable {
				return "", fmt.Errorf("%d: %s", answer.StatusCode, text)
			}
			if seconds, err := strconv.Atoi(answer.Header.Get("retry-after")); err == nil {
				pause = time.Duration(seconds) * time.Second
			}
		}
		time.Sleep(pause)
	}
	return "", fmt.Errorf("the API was not able to take the job")
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: enqueue URL PAYLOAD KEY")
		os.Exit(2)
	}
	answer, err := enqueue(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(answer)
}
