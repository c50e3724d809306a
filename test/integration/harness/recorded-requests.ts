import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';

/** A request that a client sent to a server which answered from a script. Long texts of the client's own were replaced: what counts is the form. */
export interface RecordedRequest<Body> {
  conversation: string;
  /** With the query. */
  path: string;
  /** Those of the dialect alone, without keys. */
  headers: Record<string, string>;
  body: Body;
}

/** The requests of a file of test/fixtures/http-clients, in their order. */
export function recordedRequests<Body>(file: string): RecordedRequest<Body>[] {
  const text = readFileSync(join(packageRoot(), 'test', 'fixtures', 'http-clients', file), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as RecordedRequest<Body>);
}
