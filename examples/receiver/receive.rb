# Receives webhooks: receive.rb PORT, with the signing secret in WEBHOOK_SECRET.
# On a bare socket, because Ruby's standard library has no HTTP server; use Rack in earnest.
require "base64"
require "openssl"
require "socket"

SECRET = Base64.decode64(ENV.fetch("WEBHOOK_SECRET").delete_prefix("whsec_"))
TOLERANCE_S = 300
BODY_MAX = 2 * 1024 * 1024

# In a real receiver: a table with a unique key, written in the transaction that does the work.
done = {}

# Whether one of the signatures is ours, over these bytes, and not old.
def genuine?(headers, body)
  id, timestamp = headers.values_at("webhook-id", "webhook-timestamp")
  return false unless id && timestamp&.match?(/\A\d+\z/)
  return false if (Time.now.to_i - timestamp.to_i).abs > TOLERANCE_S

  digest = OpenSSL::HMAC.digest("SHA256", SECRET, "#{id}.#{timestamp}.".b + body)
  expected = "v1,#{Base64.strict_encode64(digest)}"
  headers.fetch("webhook-signature", "").split.any? { |given| OpenSSL.secure_compare(given, expected) }
end

$stdout.sync = true
server = TCPServer.new("127.0.0.1", ARGV[0].to_i)
puts "listening on #{server.addr[1]}"
loop do
  client = server.accept
  client.gets("\n", 8192)
  headers = {}
  while (line = client.gets("\r\n", 8192)&.chomp) && !line.empty?
    name, value = line.split(":", 2)
    headers[name.downcase] = value.to_s.strip
  end
  length = headers["content-length"].to_i
  body = length.between?(1, BODY_MAX) ? client.read(length) : "".b
  status = "401 Unauthorized"
  if genuine?(headers, body.to_s.b)
    id = headers["webhook-id"]
    puts "#{done.key?(id) ? 'repeated' : 'received'} #{id}"
    done[id] = true
    status = "204 No Content"
  end
  client.write("HTTP/1.1 #{status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
rescue SystemCallError, IOError
  next
ensure
  client&.close
end
