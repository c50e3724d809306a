/** A connection of a machine that asks main to be let in: TLS 1.3 with the protocol of enrolment, and HTTP/1.1 on it. */
import { request } from 'node:http';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { z } from 'zod';
import { isErrorCode, OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { parsedJson } from '../../shared/base/json/parsed-json.js';
import { onAbort, onEvent } from '../../shared/base/runtime/living.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import {
  CONNECT_TIMEOUT_MS,
  ENROLMENT_REPLY_LIMIT_BYTES,
  ENROLMENT_REQUEST_MS,
  TLS_HANDSHAKE_TIMEOUT_MS,
} from '../../shared/wire/limits.js';
import { isPlaintextPeer, speaksNoTls } from '../../shared/transport/tls-mismatch.js';
import { roleName } from '../../shared/transport/trust/certificate.js';
import { ENROLMENT_PROTOCOL, pemOf, TLS_VERSION } from '../../shared/transport/trust/tls-options.js';
import { errorReplySchema, MAIN_FAULTS } from './enrolment-messages.js';
import { readReply, SocketAgent } from './http-on-socket.js';
import { exportedBytes } from './key-proof.js';

/** The clock that bounds a question, and the signal that ends it. */
export interface EnrolmentContext {
  readonly runtime: Runtime;
  /** Gives up. */
  readonly signal?: AbortSignal | undefined;
}

/** Main's answer in place of a reply. */
class MainsError extends OdmoeError {}

/** Main was away, slow, busy or started again. */
const MAIN_IS_SLOW: ReadonlySet<ErrorCode> = new Set(['NO_MAIN', 'TIMEOUT', 'QUEUE_FULL', 'REQUEST_SLOW']);

/** True: main may let the machine in when it is asked again, and nobody need change anything at this machine. A refusal stays one. */
export function mayPass(error: OdmoeError): boolean {
  return MAIN_IS_SLOW.has(error.code) || (error instanceof MainsError && MAIN_FAULTS.has(error.code));
}

export class EnrolmentConnection {
  private readonly agent: SocketAgent;
  private readonly endListening: () => void;

  private constructor(
    private readonly address: string,
    private readonly socket: TLSSocket,
    private readonly context: EnrolmentContext,
  ) {
    this.agent = new SocketAgent(socket);
    this.endListening = onEvent(socket, 'error', () => undefined);
  }

  /**
   * Connects. `authority`: the server must be a main that this authority (DER) has certified; null: any server is taken, so nothing secret may be
   * sent. Throws NO_MAIN, TIMEOUT, TLS_MISMATCH, TRUST_REFUSED, CANCELLED, USAGE.
   */
  static async open(
    address: string,
    authority: Buffer | null,
    context: EnrolmentContext,
  ): Promise<EnrolmentConnection> {
    throwIfAborted(context);
    const socket = connect({ ...parseAddress(address), ...TLS_VERSION, ...trustIn(authority) });
    try {
      await secured(socket, address, context);
      return new EnrolmentConnection(address, socket, context);
    } catch (thrown) {
      socket.destroy();
      throw thrown;
    }
  }

  /** The bytes that both ends of this connection export. Throws NO_MAIN. */
  get exporter(): Buffer {
    if (this.socket.destroyed) throw wentAway(this.address);
    return exportedBytes(this.socket);
  }

  /** The server's certificate, DER. Throws NO_MAIN. */
  get serverCertificate(): Buffer {
    const certificate = this.socket.destroyed ? undefined : this.socket.getPeerX509Certificate();
    if (certificate === undefined) throw wentAway(this.address);
    return certificate.raw;
  }

  /** Asks. Without a message it is a GET. Throws what main refuses with, NO_MAIN, TIMEOUT, PROTOCOL_VIOLATION, CANCELLED. */
  async ask<Schema extends z.ZodType>(
    path: string,
    message: object | null,
    schema: Schema,
    limitMs = ENROLMENT_REQUEST_MS,
  ): Promise<z.output<Schema>> {
    throwIfAborted(this.context);
    const { status, text } = await this.exchange(path, message === null ? '' : JSON.stringify(message), limitMs);
    const reply = parsedJson(text);
    const { data: refusal } = errorReplySchema.safeParse(reply);
    if (refusal !== undefined && status !== 200) {
      const { code, message: words } = refusal.error;
      throw new MainsError(isErrorCode(code) ? code : 'TRUST_REFUSED', printableLine(words));
    }
    const parsed = schema.safeParse(reply);
    if (parsed.success) return parsed.data;
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      `what answers at ${this.address} does not answer as main: give main's address, and use odmoe of the same version`,
    );
  }

  close(): void {
    this.agent.destroy();
    this.socket.destroy();
    this.endListening();
  }

  private exchange(path: string, body: string, limitMs: number): Promise<{ status: number; text: string }> {
    const { address, socket, context, agent } = this;
    return new Promise((resolve, reject) => {
      const done = (finish: () => void): void => {
        timer.cancel();
        leave();
        finish();
      };
      const fail = (error: OdmoeError): void => {
        done(() => reject(error));
        socket.destroy();
      };
      const timer = waitForPeer(context.runtime, limitMs, () => fail(silent(address, limitMs)));
      const leave = onAbort(context.signal, () => fail(cancelled()));
      const headers = { host: roleName('main'), 'content-type': 'application/json' };
      const asked = request({ agent, path, method: body === '' ? 'GET' : 'POST', headers });
      asked.on('error', () => fail(wentAway(address)));
      asked.on('response', (response) => {
        readReply(response, 2 * ENROLMENT_REPLY_LIMIT_BYTES).then(
          (text) => done(() => resolve({ status: response.statusCode ?? 0, text })),
          () => fail(wentAway(address)),
        );
      });
      asked.end(body);
    });
  }
}

function trustIn(authority: Buffer | null): ConnectionOptions {
  const options: ConnectionOptions = { ALPNProtocols: [ENROLMENT_PROTOCOL] };
  if (authority === null) return { ...options, rejectUnauthorized: false };
  return {
    ...options,
    ca: pemOf('CERTIFICATE', authority),
    rejectUnauthorized: true,
    // Main's certificate holds names, and no other role has this one.
    servername: roleName('main'),
  };
}

/** Resolves when TLS stands. */
function secured(socket: TLSSocket, address: string, { runtime, signal }: EnrolmentContext): Promise<void> {
  const limitMs = CONNECT_TIMEOUT_MS + TLS_HANDSHAKE_TIMEOUT_MS;
  return new Promise((resolve, reject) => {
    const done = (finish: () => void): void => {
      timer.cancel();
      for (const end of ends) end();
      finish();
    };
    const fail = (error: OdmoeError): void => {
      done(() => reject(error));
    };
    const timer = waitForPeer(runtime, limitMs, () => fail(silent(address, limitMs)));
    const ends = [
      onAbort(signal, () => fail(cancelled())),
      onEvent(socket, 'secureConnect', () => done(resolve)),
      onEvent(socket, 'error', (error: NodeJS.ErrnoException) => fail(explained(error, address))),
      onEvent(socket, 'close', () => fail(wentAway(address))),
    ];
  });
}

/** A failure to connect, in words. */
function explained(error: NodeJS.ErrnoException, address: string): OdmoeError {
  const { code = '' } = error;
  // It may hold words of the peer's certificate.
  const message = printableLine(error.message);
  const options = { cause: error };
  if (isPlaintextPeer(code)) return speaksNoTls(`what listens at ${address}`, options);
  if (/NO_APPLICATION_PROTOCOL/.test(code)) {
    return new OdmoeError(
      'TRUST_REFUSED',
      `the daemon at ${address} lets no machines in: give main's address`,
      options,
    );
  }
  if (/PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL/.test(code)) {
    return new OdmoeError('TLS_MISMATCH', `what listens at ${address} does not speak TLS 1.3`, options);
  }
  if (/CERT|VERIFY|ISSUER|SIGNATURE/.test(code)) {
    const why = `it is not a main of the authority that was shown (${message})`;
    const words = `the daemon at ${address} is not to be trusted: ${why}. Something stands between; nothing secret was sent: do not go on`;
    return new OdmoeError('TRUST_REFUSED', words, options);
  }
  return new OdmoeError(
    'NO_MAIN',
    `no main answers at ${address} (${message}): is it running, and is this its address?`,
    options,
  );
}

function wentAway(address: string): OdmoeError {
  return new OdmoeError('NO_MAIN', `main at ${address} went away before it answered: try again`);
}

function silent(address: string, limitMs: number): OdmoeError {
  return new OdmoeError('TIMEOUT', `main at ${address} did not answer within ${limitMs / 1000} s: try again`);
}

function cancelled(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the joining was interrupted');
}

function throwIfAborted({ signal }: EnrolmentContext): void {
  if (signal?.aborted === true) throw cancelled();
}
