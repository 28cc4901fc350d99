# Enqueues one job: enqueue.rb URL PAYLOAD KEY. Prints the API's answer.
require "json"
require "net/http"

API = URI("#{ENV.fetch('HOOK_API_URL', 'http://127.0.0.1:3300')}/v1/jobs")
ATTEMPTS = 8

# Stores the job and returns the answer; safe to call again with the same key.
def enqueue(url, payload, key)
  headers = { "content-type" => "application/json", "idempotency-key" => key }
  headers["authorization"] = "Bearer #{ENV['HOOK_API_TOKEN']}" if ENV["HOOK_API_TOKEN"]
  # The payload is text already and goes in as it is: these bytes are what the receiver gets.
  body = %({"url": #{url.to_json}, "payload": #{payload}})
  1.upto(ATTEMPTS) do |attempt|
    pause = attempt
    begin
      answer = Net::HTTP.start(API.host, API.port, use_ssl: API.scheme == "https", read_timeout: 30) do |http|
        http.post(API.path, body, headers)
      end
      return answer.body if answer.is_a?(Net::HTTPSuccess)
      abort "#{answer.code}: #{answer.body}" unless %w[429 503].include?(answer.code)
      pause = (answer["retry-after"] || attempt).to_f
    rescue SystemCallError, IOError, Timeout::Error
      # Nobody knows whether the job was stored; the key makes repeating safe.
    end
    sleep pause
  end
  abort "the API was not able to take the job"
end

puts enqueue(*ARGV)
