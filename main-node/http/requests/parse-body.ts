import { OdmoeError } from '../../../shared/errors/odmoe-error.js';
import { isDeeperThan, JSON_DEPTH_LIMIT } from './json-fault.js';

/** Largest body of a request. */
export const BODY_LIMIT_BYTES = 16 * 1024 * 1024;

const UTF_8 = new TextDecoder('utf-8', { fatal: true });

/** The JSON of a body, whatever its sender says that it is; undefined: it is empty. Throws REQUEST_INVALID. */
export function parseBody(bytes: Buffer): unknown {
  const text = decode(bytes);
  if (text.trim() === '') return undefined;
  if (isDeeperThan(text, JSON_DEPTH_LIMIT)) {
    throw invalid(`the body has more than ${JSON_DEPTH_LIMIT} lists and objects within one another`);
  }
  return parse(text);
}

function decode(bytes: Buffer): string {
  try {
    return UTF_8.decode(bytes);
  } catch {
    throw invalid('the body is not UTF-8');
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text, refusePrototypes);
  } catch (thrown) {
    if (thrown instanceof OdmoeError) throw thrown;
    throw invalid('the body is not JSON');
  }
}

/** A key that changes what all objects inherit, where it is copied without care. */
function refusePrototypes(key: string, value: unknown): unknown {
  if (key === '__proto__') throw invalid('the body has a key "__proto__"');
  return value;
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message);
}
