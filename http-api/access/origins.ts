/** Headers of requests that web pages send across origins, and of answers that they may read. */
const REQUEST_HEADERS_LIMIT = 1024;
const PREFLIGHT_KEPT_S = 600;
const READABLE_HEADERS = 'x-request-id, retry-after, x-should-retry';

/** Whether a page of that origin may ask. `host`: the request's own Host header; a page that came from there asks its own server. */
export function isAdmittedOrigin(origin: string, host: string | undefined, listed: readonly string[]): boolean {
  return listed.includes('*') || listed.includes(origin) || isOwnOrigin(origin, host);
}

/** Whether a page came from the server that it asks. */
export function isOwnOrigin(origin: string, host: string | undefined): boolean {
  return host !== undefined && [`http://${host}`, `https://${host}`].includes(origin);
}

/** Of any answer to an admitted page. */
export function originHeaders(origin: string): Record<string, string> {
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
