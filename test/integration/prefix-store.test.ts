import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { STORED_BLOCK_POSITIONS } from '../../main-node/stored-rows/block-names.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from './harness/answers.js';
import { TestDaemon } from './harness/test-daemon.js';
import { TestLog } from './harness/test-log.js';
import { openReference, packOf } from './harness/test-models.js';
import { waitUntil } from './harness/wait-until.js';
import { fetchStatus, generate } from '../wall.js';

/** Its context is long enough. */
const MODEL = 'demo';
const PROMPT = Array.from({ length: 2000 }, (_, index) => (index * 37 + 3) % 200);
const REQUEST = requestFor(PROMPT, { maxTokens: 6, logprobs: 3 });
const BLOCKS = Math.floor(PROMPT.length / STORED_BLOCK_POSITIONS);

describe('the prefix store of a main that is killed', () => {
  let home = '';
  let main: TestDaemon | null = null;
  const log = new TestLog();

  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'odmoe-prefix-store-'));
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') log.print();
    await main?.end();
    main = null;
    await rm(home, { recursive: true, force: true });
  });

  async function start(): Promise<TestDaemon> {
    const common = ['--cluster', 'kept', '--discovery', 'static', '--port', '0', '--threads', '1', '--device', 'cpu'];
    const flags = ['--model', await packOf(MODEL), '--experts', 'local', '--prefix-store', '1 GiB', ...common];
    const environment = { HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_DATA_HOME: join(home, 'data') };
    const started = await TestDaemon.start('main', flags, 'main', log, environment);
    main = started;
    await waitUntil('main has its own worker', async () => {
      const { placement } = await fetchStatus(started.address, 20_000);
      return placement?.workers.length === 1;
    });
    return started;
  }

  const ask = (daemon: TestDaemon): Promise<CollectedAnswer> => collect(generate(daemon.address, REQUEST));

  it('gives the next one a prompt of two thousand tokens, to the bit, from files that only its user may read', async function () {
    this.timeout(300_000);
    const reference = await openReference(MODEL);
    const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    reference.dispose();
    const killed = await start();
    assertSameAnswer(await ask(killed), expected);
    const directory = join(home, 'state', 'odmoe', 'kept', 'prefix-store');
    const blocks = async (): Promise<string[]> => (await readdir(directory)).filter((name) => name.length === 64);
    await waitUntil('all blocks are on the disk', async () => (await blocks()).length === BLOCKS);
    killed.signal('SIGKILL');
    await killed.exited;
    const answer = await ask(await start());
    assertSameAnswer(answer, expected);
    assert.equal(answer.finished.cachedTokens, BLOCKS * STORED_BLOCK_POSITIONS);
    for (const name of await readdir(directory))
      assert.equal((await stat(join(directory, name))).mode & 0o077, 0, name);
    assert.equal((await stat(directory)).mode & 0o077, 0);
    const { salt } = JSON.parse(await readFile(join(directory, 'store.json'), 'utf8')) as { salt: string };
    assert.ok(salt.length >= 32, 'nobody guesses the salt');
  });
});
