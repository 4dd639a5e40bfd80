-- Asks Stint whether a request may pass; see haproxy.cfg.
--
--   http-request lua.stint-ask URL   answers a refused request with Stint's answer, and
--                                    sets the variable txn.stint to passed for others
--   http-response lua.stint-headers  adds the headers of the decision
--
-- URL is http, and its host an IP address. If Stint cannot be reached, or does not
-- understand the request to it, requests are refused with 503.
--
-- This file writes the request to Stint by hand. With core.httpclient, HAProxy 2.6 crashes
-- if it has more headers than tune.http.maxhdr, so one request of a client could end it.

-- In seconds. Stint delays requests of rules with shape: true for up to max_delay (10s).
local timeout = 15

-- A token of check.tokens in Stint's settings, which Stint requires if other machines
-- reach its check API. nil: none.
local token = os.getenv("STINT_TOKEN")

-- Headers of the connection, and headers that only HAProxy may write.
local dropped = {
  ["connection"] = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["te"] = true,
  ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true, ["expect"] = true,
  ["content-length"] = true, ["host"] = true, ["forwarded"] = true,
  ["stint-token"] = true,
}

local function is_dropped(name)
  return dropped[name] or name:find("^x%-forwarded%-") or name:find("^x%-original%-")
end

-- Reports whether a header of Stint's answer is for the client.
local function is_limit(name)
  return name == "retry-after" or name == "stint-decision" or name:find("^x%-ratelimit%-") or name:find("^ratelimit")
end

local function refuse(txn, status, reason, headers, body)
  local reply = txn:reply({ status = status, reason = reason, body = body })
  for name, lines in pairs(headers) do
    for _, line in pairs(lines) do reply:add_header(name, line) end
  end
  txn:done(reply)
end

-- Of refusals, other headers go to the client, too, but for those that HAProxy writes.
local function is_refusal(name)
  return not dropped[name] and name ~= "date"
end

-- The reasons of statuses; those that the rules' refusal sets may have none.
local reasons = {
  [400] = "Bad Request", [403] = "Forbidden", [429] = "Too Many Requests",
  [431] = "Request Header Fields Too Large", [503] = "Service Unavailable",
}

-- Returns the request to Stint, for the host and path of its URL.
local function authorize_request(txn, host, path)
  local lines = { "GET " .. path .. " HTTP/1.0" }
  local function add(name, value)
    assert(not value:find("[\r\n]"), "a header value with several lines")
    table.insert(lines, name .. ": " .. value)
  end
  add("host", host)
  add("x-forwarded-method", txn.f:method())
  add("x-forwarded-uri", txn.sf:pathq())
  add("x-forwarded-host", txn.sf:req_fhdr("host")) -- req_hdr would take the text after a comma
  add("x-forwarded-for", txn.f:src())
  if token then add("stint-token", token) end
  for name, values in pairs(txn.http:req_get_headers()) do -- names are in lower case
    if not is_dropped(name) then
      for i = 0, #values do add(name, values[i]) end -- pairs would begin with the second line
    end
  end
  return table.concat(lines, "\r\n") .. "\r\n\r\n"
end

-- Parses the status, headers and body of an answer.
local function read(text)
  local status, lines, body = text:match("^HTTP/1%.%d (%d%d%d)[^\n]*\n(.-)\r?\n\r?\n(.*)$")
  local headers = {}
  for name, value in (lines or ""):gmatch("([^:\r\n]+):[ \t]*([^\r\n]*)") do
    name = name:lower()
    headers[name] = headers[name] or {}
    table.insert(headers[name], value)
  end
  return { status = tonumber(status), headers = headers, body = body }
end

local function ask(txn, url)
  local host, path = url:match("^http://([^/]+)(/.*)$")
  local address, port = assert(host, "want a URL such as http://127.0.0.1:8082/v1/authorize"):match("^%[?(.-)%]?:(%d+)$")
  local socket = core.tcp()
  socket:settimeout(timeout)
  assert(socket:connect(address, tonumber(port)))
  assert(socket:send(authorize_request(txn, host, path)))
  local answer = assert(socket:receive("*a")) -- an HTTP/1.0 answer ends with the connection
  socket:close()
  return read(answer)
end

core.register_action("stint-ask", { "http-req" }, function(txn, url)
  -- If this fails with an error that pcall does not catch, such as out of memory,
  -- HAProxy goes on; haproxy.cfg then denies the request.
  local ok, got = pcall(ask, txn, url)
  if not ok then
    core.Warning("stint: " .. tostring(got))
    got = { headers = {} }
  end
  local is_kept = got.status == 200 and is_limit or is_refusal
  local kept = {}
  for name, lines in pairs(got.headers) do
    if is_kept(name) then kept[name] = lines end
  end
  if got.status == 200 then
    txn:set_priv(kept)
    txn:set_var("txn.stint", "passed")
  elseif got.status and got.status >= 400 and got.headers["content-type"] then
    refuse(txn, got.status, reasons[got.status] or "Refused", kept, got.body)
  else
    refuse(txn, 503, reasons[503], { ["retry-after"] = { "1" }, ["cache-control"] = { "no-store" } }, "")
  end
end, 1)

core.register_action("stint-headers", { "http-res" }, function(txn)
  for name, lines in pairs(txn:get_priv() or {}) do
    txn.http:res_del_header(name) -- the application's header of the same name
    for _, line in pairs(lines) do txn.http:res_add_header(name, line) end
  end
end)
