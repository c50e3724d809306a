import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { describePlace, findJsonFault } from './json-fault.js';
import { keepWrittenJson } from './written-json.js';

/** The Content-Encoding of what is not compressed. */
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
