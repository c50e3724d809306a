import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { BodyBytes, BodyMemory } from './body-memory.js';
import { BODY_LIMITS } from './body-limits.js';
import { BodyScan } from './body-scan.js';
import { describePlace, findJsonFault } from './json-fault.js';
import { keepWrittenJson } from './written-json.js';

/** Reads the bodies of requests. */
export class BodyReader {
  /** `memory`: holds the bodies that are being read, without the first SMALL_BODY_BYTES of each. */
  constructor(private readonly memory = new BodyMemory()) {}

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
    const scan = new BodyScan({ ...BODY_LIMITS, bytes: limitBytes });
    const body = new BodyBytes(this.memory);
    try {
      await gather(payload, (arrived) => {
        for (const passed of scan.take(arrived)) body.add(passed);
      });
      return parseBody(body.whole());
    } finally {
      body.release();
    }
  }
}

/** Resolves at the end of the payload. When `take` throws, the rest is dropped. */
function gather(payload: Readable, take: (arrived: Uint8Array) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      payload.off('data', onData).off('end', onEnd).off('error', onError).off('close', onClose);
    };
    const onData = (arrived: Uint8Array): void => {
      try {
        take(arrived);
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
