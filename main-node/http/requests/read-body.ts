import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import { OdmoeError, toOdmoeError } from '../../../shared/errors/odmoe-error.js';
import { BODY_LIMITS } from './body-limits.js';
import { BodyScan } from './body-scan.js';
import { parseBody, requirePlain } from './parse-body.js';

/**
 * The JSON of a body, read to its end. What it holds is counted while it comes; where it is too much, the rest is not read but dropped, so
 * that the client can read why. Throws REQUEST_TOO_LARGE, REQUEST_INVALID.
 */
export async function readBody(payload: Readable, headers: IncomingHttpHeaders, limitBytes: number): Promise<unknown> {
  requirePlain(headers['content-encoding']);
  const announced = Number(headers['content-length'] ?? 0);
  if (announced > limitBytes) {
    payload.resume();
    throw new OdmoeError('REQUEST_TOO_LARGE', `the body has more than ${limitBytes} bytes; send less`);
  }
  return parseBody(await gather(payload, new BodyScan({ ...BODY_LIMITS, bytes: limitBytes })));
}

function gather(payload: Readable, scan: BodyScan): Promise<Uint8Array> {
  const kept: Uint8Array[] = [];
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      payload.off('data', onData).off('end', onEnd).off('error', onError).off('close', onClose);
    };
    const onData = (piece: Uint8Array): void => {
      try {
        kept.push(...scan.take(piece));
      } catch (thrown) {
        leave();
        payload.on('error', () => undefined).resume();
        reject(toOdmoeError(thrown));
      }
    };
    const onEnd = (): void => {
      leave();
      resolve(Buffer.concat(kept));
    };
    const onError = (error: Error): void => {
      leave();
      reject(new OdmoeError('REQUEST_INVALID', `the body did not come whole: ${error.message}`, { cause: error }));
    };
    const onClose = (): void => onError(new Error('the connection was closed'));
    payload.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose);
  });
}
