/** Where a request belongs in its client's trace (W3C Trace Context). */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  traceId: string;
  /** Of the client's span that the request is part of: 16 hexadecimal digits. */
  spanId: string;
}

/** version-traceid-parentid-flags; later versions may add fields behind. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/;
const FORBIDDEN_VERSION = 'ff';
const FIRST_VERSION = '00';
const LENGTH_LIMIT = 512;

/** What the header "traceparent" says; null: it is not there, or not as the standard has it. */
export function parseTraceparent(header: string | string[] | undefined): TraceContext | null {
  if (typeof header !== 'string' || header.length > LENGTH_LIMIT) return null;
  const [, version, traceId = '', spanId = '', more] = TRACEPARENT.exec(header) ?? [];
  if (version === undefined || version === FORBIDDEN_VERSION) return null;
  if (version === FIRST_VERSION && more !== undefined) return null;
  return isAllZero(traceId) || isAllZero(spanId) ? null : { traceId, spanId };
}

function isAllZero(digits: string): boolean {
  return /^0+$/.test(digits);
}
