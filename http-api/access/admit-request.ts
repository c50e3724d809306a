import type { FastifyReply, FastifyRequest } from 'fastify';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { keyOf, type ApiKeys, type KeyOwner, type KeyRole } from './api-keys.js';
import { isServedHost } from './host-check.js';
import { type KeySessions, sessionTokenOf } from './key-sessions.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** The rights of the key that came with the request. */
    keyRole: KeyRole;
  }
  interface FastifyContextConfig {
    /** True: only a key with the operator's role admits. */
    operatorOnly?: boolean;
  }
}

/** The hosts, origins and keys that the HTTP API admits. */
export interface Admission {
  hosts: ReadonlySet<string>;
  origins: readonly string[];
  keys: ApiKeys;
  sessions: KeySessions;
}

/**
 * Checks a request before its body is read. A browser's preflight request is answered at once.
 * Throws REQUEST_INVALID, HOST_REFUSED, UNAUTHORIZED, NOT_ALLOWED.
 */
export async function admitRequest(
  { hosts, origins, keys, sessions }: Admission,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  requireHost(request, hosts);
  const { origin } = request.headers;
  const { method } = request;
  if (origin !== undefined) {
    if (isAdmittedOrigin(origin, request.headers.host, origins)) reply.headers(originHeaders(origin));
    else if (method !== 'GET' && method !== 'HEAD') throw originRefused();
    if (method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined) {
      await reply.code(204).headers(preflightHeaders(request.headers['access-control-request-headers'])).send();
      return;
    }
  }
  const { open, operatorOnly } = request.routeOptions.config;
  if (open === true) return;
  const { client, role } = requireKey(request, { keys, sessions });
  request.keyRole = role;
  // Without keys nobody has a name, so the hosts share main fairly.
  if (request.account) request.account.client = client === '' ? request.ip : client;
  if (operatorOnly === true && role !== 'operator') throw operatorWanted();
}

function requireHost({ raw }: FastifyRequest, hosts: ReadonlySet<string>): void {
  const names = raw.headersDistinct.host ?? [];
  if (names.length > 1) throw new OdmoeError('REQUEST_INVALID', 'the request has several Host headers');
  const [name] = names;
  if (name === undefined || name === '') {
    if (raw.httpVersion === '1.0') return;
    throw new OdmoeError('REQUEST_INVALID', 'the request has no Host header, which HTTP/1.1 requires');
  }
  if (isServedHost(name, hosts)) return;
  throw new OdmoeError(
    'HOST_REFUSED',
    'the Host header names no host that is served here: ask by an IP address, localhost or the name of the machine, or list the name ' +
      'in --http-hosts, or under main.http_hosts in cluster.yaml',
  );
}

function originRefused(): OdmoeError {
  return new OdmoeError(
    'HOST_REFUSED',
    'web pages of this Origin may not ask: list it under main.http_origins in cluster.yaml',
  );
}

function operatorWanted(): OdmoeError {
  return new OdmoeError(
    'NOT_ALLOWED',
    'only a key with "role: operator" (docs/http.md) may let machines in or remove them: send one, or say it on the host of main: ' +
      '"odmoe accept CODE", "odmoe node remove ID"',
  );
}

function requireKey(request: FastifyRequest, { keys, sessions }: Pick<Admission, 'keys' | 'sessions'>): KeyOwner {
  const key = keyOf(request.headers);
  const ofKey = keys.ownerOf(key);
  if (ofKey !== null) return ofKey;
  const ofCookie = key === null && mayUseCookie(request) ? sessions.ownerOf(sessionTokenOf(request.headers)) : null;
  if (ofCookie !== null) return ofCookie;
  const what = key === null ? 'no API key came with the request' : 'the API key is none that this cluster knows';
  throw new OdmoeError('UNAUTHORIZED', `${what}: send one as "Authorization: Bearer KEY" or "x-api-key: KEY"`);
}

/**
 * A browser sends its cookie with every request, also for pages of another port of this host. The cookie counts only for the page's own
 * origin. Browsers name the origin in every request that may change something. A request that only reads may omit it: a page elsewhere
 * cannot read the answer.
 */
function mayUseCookie({ method, headers }: FastifyRequest): boolean {
  const { origin, host } = headers;
  if (origin === undefined) return method === 'GET' || method === 'HEAD';
  return isOwnOrigin(origin, host);
}

/** Limit of the header names that a preflight may ask for (characters), time for which a preflight counts, and headers that pages may read. */
const REQUEST_HEADERS_LIMIT = 1024;
const PREFLIGHT_AGE_S = 600;
const READABLE_HEADERS = 'x-request-id, retry-after, x-should-retry';

/** Tells whether a page of that origin may send requests. `host`: the request's own Host header; a page from there asks its own server. */
export function isAdmittedOrigin(origin: string, host: string | undefined, listed: readonly string[]): boolean {
  return listed.includes('*') || listed.includes(origin) || isOwnOrigin(origin, host);
}

/** Tells whether a page came from the server that it asks. */
function isOwnOrigin(origin: string, host: string | undefined): boolean {
  return host !== undefined && [`http://${host}`, `https://${host}`].includes(origin);
}

/** The headers of every answer to an admitted page. */
function originHeaders(origin: string): Record<string, string> {
  return { 'access-control-allow-origin': origin, vary: 'origin', 'access-control-expose-headers': READABLE_HEADERS };
}

/** The headers of the answer to a preflight request. `wanted`: the headers that the page wants to send. */
export function preflightHeaders(wanted: string | undefined): Record<string, string> {
  const named = wanted !== undefined && /^[\w\-, ]*$/.test(wanted) ? wanted.slice(0, REQUEST_HEADERS_LIMIT) : '';
  return {
    'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
    'access-control-allow-headers': named === '' ? 'authorization, content-type, x-api-key' : named,
    'access-control-max-age': String(PREFLIGHT_AGE_S),
  };
}
