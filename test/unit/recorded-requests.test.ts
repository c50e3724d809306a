import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

const DIRECTORY = join(packageRoot(), 'test', 'fixtures', 'http-clients');
/** Pictures, and arguments of calls. */
const WRITTEN_BY_SCRIPTS = new Set(['data', 'url', 'image_url', 'arguments']);

function longTexts(value: unknown, key = ''): string[] {
  if (typeof value === 'string') return value.length > 200 && !WRITTEN_BY_SCRIPTS.has(key) ? [value] : [];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, one]) => longTexts(one, Array.isArray(value) ? key : name));
}

describe('recorded requests of HTTP clients', () => {
  for (const file of readdirSync(DIRECTORY).filter((name) => name.endsWith('.jsonl'))) {
    it(`${file} holds no long texts of the client, and no paths of a machine`, () => {
      const lines = readFileSync(join(DIRECTORY, file), 'utf8').trim().split('\n');
      for (const line of lines) {
        const { headers, body } = JSON.parse(line) as { headers: Record<string, string>; body: object };
        assert.deepEqual(longTexts(body), []);
        assert.deepEqual(line.match(/\/(?:(?:tmp|root|var|work|mnt|Users)\/|home\/(?!user\/))[^"\\]+/g), null);
        assert.deepEqual(
          Object.keys(headers).filter((name) => !name.startsWith('anthropic-')),
          [],
        );
      }
    });
  }
});
