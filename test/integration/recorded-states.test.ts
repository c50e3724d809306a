import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RecordedStates } from '../../engine/fitting/recorded-states.js';
import { openPack } from '../../packs/format/open-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { fetchStatus, generate } from '../wall.js';
import { assertSameAnswer, collect, referenceAnswer, requestFor } from './harness/answers.js';
import { COMMAND_TIMEOUT_MS } from './harness/run-odmoe.js';
import { TestDaemon } from './harness/test-daemon.js';
import { TestLog } from './harness/test-log.js';
import { packOf } from './harness/test-models.js';
import { waitUntil } from './harness/wait-until.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 40, logprobs: 3 });
/** The last token of an answer is not run. */
const ROWS = 39;

describe('a main that records its answers and is killed', () => {
  let home = '';
  let pack = '';
  let main: TestDaemon | null = null;
  const log = new TestLog();

  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'odmoe-recorded-'));
    pack = join(home, 'pack');
    await cp(await packOf('tiny'), pack, { recursive: true });
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') log.print();
    await main?.end();
    main = null;
    await rm(home, { recursive: true, force: true });
  });

  async function start(): Promise<TestDaemon> {
    const common = [
      '--cluster',
      'recorded',
      '--discovery',
      'static',
      '--port',
      '0',
      '--threads',
      '1',
      '--device',
      'cpu',
    ];
    const flags = ['--model', pack, '--experts', 'local', '--record-tokens', '5000', ...common];
    const environment = { HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_DATA_HOME: join(home, 'data') };
    const started = await TestDaemon.start('main', flags, 'main', log, environment);
    main = started;
    await waitUntil('main has its own worker', async () => {
      const { placement } = await fetchStatus(started.address, 20_000);
      return placement?.workers.length === 1;
    });
    return started;
  }

  async function reading<Result>(use: (states: RecordedStates) => Promise<Result>): Promise<Result> {
    const states = await RecordedStates.open(await openPack(pack));
    try {
      return await use(states);
    } finally {
      await states.close();
    }
  }

  it('leaves whole rows, behind which the next one goes on, and odmoe fit says how many there are', async function () {
    this.timeout(300_000);
    const expected = await referenceAnswer('tiny', REQUEST);
    const killed = await start();
    assertSameAnswer(await collect(generate(killed.address, REQUEST)), expected);
    const answering = collect(generate(killed.address, REQUEST)).catch(() => null);
    await waitUntil(
      'some rows of the second answer are there',
      async () => (await reading((states) => states.rows())) > ROWS + 3,
    );
    killed.signal('SIGKILL');
    await killed.exited;
    await answering;
    const before = await reading((states) => states.rows());
    const next = await start();
    assert.ok(await reading((states) => states.isWritten()));
    assertSameAnswer(await collect(generate(next.address, REQUEST)), expected);
    await next.end();
    main = null;
    await reading(async (states) => {
      const rows = await states.rows();
      assert.equal(rows, before + ROWS);
      for (let row = 0; row < rows; row++) assert.ok(await states.row(row));
      assert.equal(
        new Set(
          (await states.heads(rows, { signal: new AbortController().signal, onProgress: () => undefined })).answers,
        ).size,
        3,
      );
    });
    const words = [join(packageRoot(), 'bin', 'odmoe'), 'fit', pack, '--record'];
    const { status, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8', timeout: COMMAND_TIMEOUT_MS });
    assert.notEqual(status, 0);
    assert.match(
      stderr,
      new RegExp(`${before + ROWS} of 5000 tokens are recorded, and no main of this machine records now`),
    );
  });
});
