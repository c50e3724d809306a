import type { FastifyReply, FastifyRequest } from 'fastify';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { keyOf, type ApiKeys } from './api-keys.js';
import { isServedHost } from './host-check.js';
import { type KeySessions, sessionTokenOf } from './key-sessions.js';

/** Whom a door lets in. */
export interface Admission {
  hosts: ReadonlySet<string>;
  origins: readonly string[];
  keys: ApiKeys;
  sessions: KeySessions;
}

/**
 * Looks at a request before its body is read, and answers one by which a browser asks whether a page may ask.
 * Throws REQUEST_INVALID, HOST_REFUSED, UNAUTHORIZED.
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
  if (request.routeOptions.config.open !== true) requireKey(request, { keys, sessions });
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
      'under main.http_hosts in cluster.yaml',
  );
}

function originRefused(): OdmoeError {
  return new OdmoeError(
    'HOST_REFUSED',
    'web pages of this Origin may not ask: list it under main.http_origins in cluster.yaml',
  );
}

function requireKey(request: FastifyRequest, { keys, sessions }: Pick<Admission, 'keys' | 'sessions'>): void {
  const key = keyOf(request.headers);
  if (keys.admits(key)) {
    if (request.account) request.account.client = keys.clientOf(key);
    return;
  }
  const client = key === null && mayUseCookie(request) ? sessions.clientOf(sessionTokenOf(request.headers)) : null;
  if (client !== null) {
    if (request.account) request.account.client = client;
    return;
  }
  const what = key === null ? 'no API key came with the request' : 'the API key is none that this cluster knows';
  throw new OdmoeError('UNAUTHORIZED', `${what}: send one as "Authorization: Bearer KEY" or "x-api-key: KEY"`);
}

/**
 * A cookie comes with all that a browser asks, also for pages of another port of this host. It counts for the page's own origin alone,
 * which browsers name wherever something may be changed; what only looks may leave it out, and a page elsewhere cannot read it.
 */
function mayUseCookie({ method, headers }: FastifyRequest): boolean {
  const { origin, host } = headers;
  if (origin === undefined) return method === 'GET' || method === 'HEAD';
  return isOwnOrigin(origin, host);
}

/** Headers of requests that web pages send across origins, and of answers that they may read. */
const REQUEST_HEADERS_LIMIT = 1024;
const PREFLIGHT_KEPT_S = 600;
const READABLE_HEADERS = 'x-request-id, retry-after, x-should-retry';

/** Whether a page of that origin may ask. `host`: the request's own Host header; a page that came from there asks its own server. */
export function isAdmittedOrigin(origin: string, host: string | undefined, listed: readonly string[]): boolean {
  return listed.includes('*') || listed.includes(origin) || isOwnOrigin(origin, host);
}

/** Whether a page came from the server that it asks. */
function isOwnOrigin(origin: string, host: string | undefined): boolean {
  return host !== undefined && [`http://${host}`, `https://${host}`].includes(origin);
}

/** Of any answer to an admitted page. */
function originHeaders(origin: string): Record<string, string> {
  return { 'access-control-allow-origin': origin, vary: 'origin', 'access-control-expose-headers': READABLE_HEADERS };
}

/** Of the answer to a browser that asks whether a page may ask. `wanted`: headers that the page wants to send. */
export function preflightHeaders(wanted: string | undefined): Record<string, string> {
  const named = wanted !== undefined && /^[\w\-, ]*$/.test(wanted) ? wanted.slice(0, REQUEST_HEADERS_LIMIT) : '';
  return {
    'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
    'access-control-allow-headers': named === '' ? 'authorization, content-type, x-api-key' : named,
    'access-control-max-age': String(PREFLIGHT_KEPT_S),
  };
}
