import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { BODY_LIMITS } from './body-limits.js';
import { BodyScan } from './body-scan.js';
import { describePlace, findJsonFault } from './json-fault.js';
import { keepWrittenJson } from './written-json.js';

/** Most bytes of all bodies that are being read, and the bytes of each that do not count. So small bodies are always accepted. */
export const BODIES_LIMIT_BYTES = 256 * 1024 * 1024;
export const SMALL_BODY_BYTES = 64 * 1024;

/** Reads the bodies of requests. */
export class BodyReader {
  /** Bytes of the bodies that are being read, without the first SMALL_BODY_BYTES of each. */
  private largeBytes = 0;

  constructor(private readonly largeLimitBytes = BODIES_LIMIT_BYTES) {}

  /**
   * Reads a body to its end and parses its JSON. The contents are counted while they arrive. Above a limit, the rest is dropped, so that the
   * client can read the reason. Throws REQUEST_TOO_LARGE, REQUEST_INVALID, and QUEUE_FULL if too many bytes are being read.
   */
  async read(payload: Readable, headers: IncomingHttpHeaders, limitBytes: number): Promise<unknown> {
    requirePlain(headers['content-encoding']);
    const announced = Number(headers['content-length'] ?? 0);
    if (announced > limitBytes) {
      payload.resume();
      throw new OdmoeError('REQUEST_TOO_LARGE', `the body has more than ${limitBytes} bytes; send less`);
    }
    const body = new GatheredBody(new BodyScan({ ...BODY_LIMITS, bytes: limitBytes }), (bytes) => this.hold(bytes));
    try {
      await gather(payload, body);
      return parseBody(body.whole());
    } finally {
      this.largeBytes -= body.largeBytes;
    }
  }

  private hold(bytes: number): void {
    if (this.largeBytes + bytes > this.largeLimitBytes) {
      const held = `large requests of together ${this.largeLimitBytes} bytes are being read already`;
      throw new OdmoeError('QUEUE_FULL', `${held}: ask again later`);
    }
    this.largeBytes += bytes;
  }
}

/** The bytes of a body that have arrived and are stored. */
class GatheredBody {
  largeBytes = 0;
  private bytes = 0;
  private readonly passed: Uint8Array[] = [];

  /** `hold`: takes bytes from the limit that all bodies share. It throws when the limit is reached. */
  constructor(
    private readonly scan: BodyScan,
    private readonly hold: (bytes: number) => void,
  ) {}

  take(arrived: Uint8Array): void {
    for (const passed of this.scan.take(arrived)) {
      this.bytes += passed.length;
      const largeBytes = Math.max(0, this.bytes - SMALL_BODY_BYTES);
      this.hold(largeBytes - this.largeBytes);
      this.largeBytes = largeBytes;
      this.passed.push(passed);
    }
  }

  whole(): Uint8Array {
    return Buffer.concat(this.passed);
  }
}

function gather(payload: Readable, body: GatheredBody): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      payload.off('data', onData).off('end', onEnd).off('error', onError).off('close', onClose);
    };
    const onData = (arrived: Uint8Array): void => {
      try {
        body.take(arrived);
      } catch (thrown) {
        leave();
        payload.on('error', () => undefined).resume();
        reject(toOdmoeError(thrown));
      }
    };
    const onEnd = (): void => {
      leave();
      resolve();
    };
    const onError = (error: Error): void => {
      leave();
      reject(new OdmoeError('REQUEST_INVALID', `the body did not come whole: ${error.message}`, { cause: error }));
    };
    const onClose = (): void => onError(new Error('the connection was closed'));
    payload.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose);
  });
}

/** The Content-Encoding of a body that is not compressed. */
const IDENTITY = 'identity';
const UTF_8 = new TextDecoder('utf-8', { fatal: true });

/** Throws REQUEST_INVALID for a body that is compressed. */
export function requirePlain(encoding = IDENTITY): void {
  if (encoding.toLowerCase() === IDENTITY) return;
  throw invalid('the body is compressed, which is not taken; send it as it is');
}

/** The JSON of a body that a BodyScan has let through; undefined: it is empty. Throws REQUEST_INVALID. */
export function parseBody(bytes: Uint8Array): unknown {
  const text = decode(bytes);
  if (text.trim() === '') return undefined;
  const body = parse(text);
  keepWrittenJson(text, body);
  return body;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const at = findJsonFault(text) ?? 0;
    const what = at >= text.length ? 'it ends too early' : `it is wrong at ${describePlace(text, at)}`;
    throw invalid(`the body is not JSON: ${what}`);
  }
}

function decode(bytes: Uint8Array): string {
  try {
    return UTF_8.decode(bytes);
  } catch {
    throw invalid('the body is not UTF-8');
  }
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message);
}
