-- Asks Stint whether a request may pass; see haproxy.cfg.
--
--   http-request lua.stint-ask URL   refuses what Stint refuses, with its answer
--   http-response lua.stint-tell     hands the headers of the decision on
--
-- The host in URL must be an IP address. If Stint cannot be reached, requests are
-- refused with 503.

-- In ms. Stint holds requests of rules that shape, for up to max_hold (10s).
local timeout = 15000

-- What is the connection's own, and what clients must not write in HAProxy's name.
local dropped = {
  ["connection"] = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["te"] = true,
  ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true, ["expect"] = true,
  ["content-length"] = true, ["host"] = true, ["forwarded"] = true,
}

local function is_dropped(name)
  return dropped[name] or name:find("^x%-forwarded%-") or name:find("^x%-original%-")
end

-- The headers of the decision.
local function is_told(name)
  return name == "retry-after" or name:find("^x%-ratelimit%-") or name:find("^ratelimit")
end

local function refuse(txn, status, reason, headers, body)
  local reply = txn:reply({ status = status, reason = reason, body = body })
  for name, lines in pairs(headers) do
    for _, line in pairs(lines) do reply:add_header(name, line) end
  end
  txn:done(reply)
end

local reasons = { [400] = "Bad Request", [403] = "Forbidden", [429] = "Too Many Requests", [503] = "Service Unavailable" }

local function ask(txn, url)
  local headers = {}
  for name, lines in pairs(txn.http:req_get_headers()) do -- names are in lower case
    if not is_dropped(name) then
      headers[name] = {}
      for _, line in pairs(lines) do table.insert(headers[name], line) end
    end
  end
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-uri"] = { txn.sf:pathq() }
  headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
  headers["x-forwarded-for"] = { txn.f:src() }
  return core.httpclient():get({ url = url, headers = headers, timeout = timeout })
end

core.register_action("stint-ask", { "http-req" }, function(txn, url)
  -- HAProxy lets a request pass where Lua fails: no error may leave this function.
  local ok, answer = pcall(ask, txn, url)
  if not ok then core.Warning("stint: " .. tostring(answer)) end
  local kept = {}
  if ok and answer and answer.headers then
    for name, lines in pairs(answer.headers) do
      if is_told(name) then kept[name] = lines end
    end
  end
  if ok and answer and answer.status == 200 then
    txn:set_priv(kept)
  elseif ok and answer and reasons[answer.status] and answer.headers["content-type"] then
    kept["content-type"] = answer.headers["content-type"]
    kept["cache-control"] = answer.headers["cache-control"]
    refuse(txn, answer.status, reasons[answer.status], kept, answer.body)
  else
    refuse(txn, 503, reasons[503], { ["retry-after"] = { "1" }, ["cache-control"] = { "no-store" } }, "")
  end
end, 1)

core.register_action("stint-tell", { "http-res" }, function(txn)
  for name, lines in pairs(txn:get_priv() or {}) do
    txn.http:res_del_header(name) -- the application's of the same name
    for _, line in pairs(lines) do txn.http:res_add_header(name, line) end
  end
end)
