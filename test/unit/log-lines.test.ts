import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { RUNTIME } from '../wall.js';
import { createLogger } from '../../shared/base/log/logger.js';

type Level = 'error' | 'warn' | 'info' | 'debug';

async function linesOf(
  settings: { level: Level; format: 'text' | 'json' },
  write: (log: ReturnType<typeof createLogger>) => void,
): Promise<string[]> {
  const chunks: Buffer[] = [];
  const stream = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      chunks.push(chunk);
      done();
    },
  });
  write(createLogger(settings, { role: 'worker', id: 'w1' }, RUNTIME, stream));
  await new Promise((resolve) => setImmediate(resolve));
  return Buffer.concat(chunks).toString().split('\n').slice(0, -1);
}

describe('the lines of a log', () => {
  it('stand one for each event, as text, whatever the data hold', async () => {
    const lines = await linesOf({ level: 'info', format: 'text' }, (log) => {
      log.info('peer found', { address: '10.0.0.1:7602', name: 'two words', count: 3, text: 'line\nbreak "quoted"' });
      log.warn('first\nsecond', { error: new OdmoeError('TIMEOUT', 'late') });
    });
    assert.equal(lines.length, 2);
    assert.match(
      lines[0] ?? '',
      /^\d{4}-\d\d-\d\dT[\d:.]+Z info {2}worker w1: peer found address=10\.0\.0\.1:7602 name="two words" count=3 text="line\\nbreak \\"quoted\\""$/,
    );
    assert.match(lines[1] ?? '', /warn {2}worker w1: first second error="TIMEOUT: late"$/);
  });

  it("are one JSON object for each event, and fields cannot replace the line's own properties", async () => {
    const [line] = await linesOf({ level: 'info', format: 'json' }, (log) => {
      log.error('broke', { id: 'forged', level: 'forged', event: 'forged', size: 12n, list: [1, 2] });
    });
    const { time, ...rest } = JSON.parse(line ?? '') as Record<string, unknown>;
    assert.equal(typeof time, 'string');
    assert.deepEqual(rest, { level: 'error', role: 'worker', id: 'w1', event: 'broke', size: '12', list: [1, 2] });
  });

  it('are not written below the level', async () => {
    const write = (log: ReturnType<typeof createLogger>): void => {
      log.debug('d');
      log.info('i');
      log.warn('w');
      log.error('e');
    };
    for (const [level, count] of [
      ['debug', 4],
      ['info', 3],
      ['warn', 2],
      ['error', 1],
    ] as const) {
      assert.equal((await linesOf({ level, format: 'json' }, write)).length, count, level);
    }
  });

  it('survive values that JSON cannot hold, and are cut where too long', async () => {
    const circular: { self?: unknown } = {};
    circular.self = circular;
    const [line] = await linesOf({ level: 'info', format: 'json' }, (log) => {
      log.info('odd', { circular, missing: undefined, call: () => 1, long: 'x'.repeat(100_000) });
    });
    assert.ok((line ?? '').length < 3000);
    assert.match(line ?? '', /cannot hold/);
  });
});
