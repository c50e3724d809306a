/** Probes an address by raw TLS and HTTP. No reply is trusted, and every step has bounds of time and bytes. */
import { request } from 'node:http';
import { connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { authorityReplySchema, ENROLMENT_PATHS } from '../../engine/trust/enrolment-messages.js';
import { readReply, SocketAgent } from '../../engine/trust/http-on-socket.js';
import { parsedJson } from '../../shared/base/json/parsed-json.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { METHODS } from '../../shared/transport/methods.js';
import { ERROR_CODE_METADATA } from '../../shared/transport/rpc-errors.js';
import { claimedPeer, clusterOfAuthority, roleName } from '../../shared/transport/trust/certificate.js';
import type { OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import type { CertifiedCaller } from '../../shared/transport/trust/peer-role.js';
import { ENROLMENT_PROTOCOL, pemOf, TLS_VERSION } from '../../shared/transport/trust/tls-options.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import { runtime } from '../client/process-runtime.js';

/** Most bytes of the door's reply that are read; a certificate has about 1000. */
const REPLY_LIMIT_BYTES = 16_384;
/** Longest words of a refusal that are shown. */
const WORDS_LIMIT = 1000;

/** The data that a daemon with TLS shows to everybody. */
export interface ShownByTls {
  /** The names in its certificate, which anybody may have written; null: they are not those of odmoe. */
  readonly peer: CertifiedCaller | null;
  /** Its certificate, DER. */
  readonly certificate: Buffer;
  /** The authority (DER) that the door for new machines shows; null: there is no door. Only main has one. */
  readonly authority: Buffer | null;
  /** Main's clock and this machine's at one time, in ms since 1970; null: it tells none. */
  readonly clocks: Clocks | null;
}

export interface Clocks {
  readonly thereMs: number;
  readonly hereMs: number;
}

/** Main's reply to a machine that shows its certificate. */
export type Admission =
  | { readonly kind: 'admitted' }
  /** `words`: for the person at this machine. */
  | { readonly kind: 'refused'; readonly words: string }
  | { readonly kind: 'unanswered'; readonly reason: string };

/** Null: what listens there speaks no TLS 1.3. `timeoutMs`: for each of at most three steps. */
export async function probeTls(address: string, timeoutMs: number): Promise<ShownByTls | null> {
  const socket =
    (await secured(address, { ALPNProtocols: [ENROLMENT_PROTOCOL] }, timeoutMs)) ??
    (await secured(address, { ALPNProtocols: ['h2'] }, timeoutMs));
  if (socket === null) return null;
  try {
    const certificate = socket.getPeerX509Certificate()?.raw ?? Buffer.alloc(0);
    const peer = claimedPeer(certificate);
    const hasDoor = peer !== null && socket.alpnProtocol === ENROLMENT_PROTOCOL;
    const door = hasDoor ? await askDoor(socket, timeoutMs) : null;
    return { peer, certificate, authority: door?.authority ?? null, clocks: door?.clocks ?? null };
  } finally {
    socket.destroy();
  }
}

/** Calls main with the certificate, and reads how it answers. */
export async function probeAdmission(address: string, own: OwnCertificate, timeoutMs: number): Promise<Admission> {
  const shown = { cert: pemOf('CERTIFICATE', own.certificate), key: own.key.export({ type: 'pkcs8', format: 'pem' }) };
  const socket = await secured(address, { ALPNProtocols: ['h2'], ...shown }, timeoutMs);
  if (socket === null) return { kind: 'unanswered', reason: 'the connection ended before TLS stood' };
  try {
    const headers = await identifyHeaders(socket, timeoutMs);
    if (headers === null) return { kind: 'unanswered', reason: 'the connection ended, or no reply came in time' };
    if (headers[ERROR_CODE_METADATA] !== 'TRUST_REFUSED') return { kind: 'admitted' };
    return { kind: 'refused', words: wordsOf(String(headers['grpc-message'])) };
  } finally {
    socket.destroy();
  }
}

function wordsOf(encoded: string): string {
  const bounded = encoded.slice(0, WORDS_LIMIT);
  try {
    return decodeURI(bounded);
  } catch {
    return bounded;
  }
}

/** A connection on which TLS 1.3 stands, to whomever it leads; null: it came to none. */
function secured(address: string, options: ConnectionOptions, timeoutMs: number): Promise<TLSSocket | null> {
  const socket = connect({
    ...parseAddress(address),
    ...TLS_VERSION,
    servername: roleName('main'),
    ...options,
    rejectUnauthorized: false,
  });
  // The socket may fail later, too; what it is used for then ends without a reply.
  socket.on('error', () => undefined);
  return within<TLSSocket>(timeoutMs, (settle) => {
    socket.once('secureConnect', () => settle(socket));
    socket.once('close', () => settle(null));
  }).then((secure) => {
    if (secure === null) socket.destroy();
    return secure;
  });
}

/** The answer, or null after the time. */
async function within<Answer>(
  timeoutMs: number,
  ask: (settle: (answer: Answer | null) => void) => void,
): Promise<Answer | null> {
  let silence = { cancel: (): void => undefined };
  try {
    return await new Promise<Answer | null>((settle) => {
      silence = waitForPeer(runtime, timeoutMs, () => settle(null));
      ask(settle);
    });
  } finally {
    silence.cancel();
  }
}

/** Asks the door for new machines which authority the cluster has. Null: it does not answer as one. */
async function askDoor(socket: TLSSocket, timeoutMs: number): Promise<{ authority: Buffer; clocks: Clocks } | null> {
  const response = await within<{ text: string; date: string }>(timeoutMs, (settle) => {
    const path = ENROLMENT_PATHS.authority;
    const asked = request({ agent: new SocketAgent(socket), path, headers: { host: roleName('main') } });
    asked.on('error', () => settle(null));
    asked.on('response', (reply) => {
      const date = reply.headers.date ?? '';
      readReply(reply, REPLY_LIMIT_BYTES).then(
        (text) => settle({ text, date }),
        () => settle(null),
      );
    });
    asked.end();
  });
  if (response === null) return null;
  const { data } = authorityReplySchema.safeParse(parsedJson(response.text));
  if (data === undefined || clusterOfAuthority(data.authority) === null) return null;
  return { authority: data.authority, clocks: { thereMs: Date.parse(response.date), hereMs: runtime.wallMs() } };
}

/** The headers of the reply to `Node.Identify`. Null: none came. */
async function identifyHeaders(socket: TLSSocket, timeoutMs: number): Promise<IncomingHttpHeaders | null> {
  const session = connectHttp2('https://main', { createConnection: () => socket });
  try {
    return await within<IncomingHttpHeaders>(timeoutMs, (settle) => {
      session.on('error', () => settle(null));
      session.on('close', () => settle(null));
      const stream = session.request({
        ':method': 'POST',
        ':path': METHODS.node.identify.path,
        'content-type': 'application/grpc',
        te: 'trailers',
      });
      stream.on('error', () => settle(null));
      stream.on('response', (headers) => settle(headers));
      // A message of no bytes: not compressed, of length 0.
      stream.end(Buffer.alloc(5));
    });
  } finally {
    session.destroy();
  }
}
