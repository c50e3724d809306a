import { OdmoeError } from '../../../shared/errors/odmoe-error.js';
import { describePlace, findJsonFault, isDeeperThan, JSON_DEPTH_LIMIT } from './json-fault.js';

/** Largest body of a request. */
export const BODY_LIMIT_BYTES = 16 * 1024 * 1024;

/** The Content-Encoding of what is not compressed. */
const IDENTITY = 'identity';
const UTF_8 = new TextDecoder('utf-8', { fatal: true });
/** How the key may be written that is refused: any of its letters as an escape. */
const PROTOTYPE_KEY = /"(?:_|\\u005f){2}[^"]{5,54}(?:_|\\u005f){2}"\s*:/i;

/**
 * The JSON of a body, whatever its sender says that it is; undefined: it is empty. `encoding`: its Content-Encoding. Throws
 * REQUEST_INVALID.
 */
export function parseBody(bytes: Uint8Array, encoding = IDENTITY): unknown {
  if (encoding.toLowerCase() !== IDENTITY)
    throw invalid('the body is compressed, which is not taken; send it as it is');
  const text = decode(bytes);
  if (text.trim() === '') return undefined;
  if (isDeeperThan(text, JSON_DEPTH_LIMIT)) {
    throw invalid(`the body has more than ${JSON_DEPTH_LIMIT} lists and objects within one another`);
  }
  try {
    // A look at each key costs much, and hardly a text holds anything like this one.
    return PROTOTYPE_KEY.test(text) ? JSON.parse(text, refusePrototypes) : JSON.parse(text);
  } catch (thrown) {
    if (thrown instanceof OdmoeError) throw thrown;
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

/** A key that changes what all objects inherit, where it is copied without care. */
function refusePrototypes(key: string, value: unknown): unknown {
  if (key === '__proto__') throw invalid('the body has a key "__proto__", which is not taken');
  return value;
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message);
}
