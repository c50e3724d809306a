import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openServedPack } from '../../../packs/open-served-pack.js';
import { expertExtents } from '../../../packs/format/extents.js';
import {
  assertSameAnswer,
  referenceAnswer,
  requestFor,
  type CollectedAnswer,
} from '../../integration/harness/answers.js';
import { ProcessCluster, endCluster } from '../../integration/harness/process-cluster.js';
import { SlowLink } from '../../integration/harness/slow-link.js';
import { packOf } from '../../integration/harness/test-models.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 100, logprobs: 300 });

describe('worker processes on new boxes', () => {
  let expected: CollectedAnswer;
  let cluster: ProcessCluster | null = null;
  let parent: string;
  let link: SlowLink | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  beforeEach(() => {
    parent = mkdtempSync(join(tmpdir(), 'odmoe-fetch-'));
  });

  afterEach(async function () {
    await endCluster(this, cluster);
    cluster = null;
    link?.close();
    link = null;
    rmSync(parent, { recursive: true, force: true });
  });

  const fetched = (directory: string): number => {
    const path = join(directory, 'fetching.jsonl');
    if (!existsSync(path)) return 0;
    return readFileSync(path, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('{"layer"')).length;
  };

  it('need nothing but the address of main', async () => {
    const running = (cluster = await ProcessCluster.start('tiny', 0, false));
    const environment = { XDG_DATA_HOME: parent };
    await Promise.all(['fresh-0', 'fresh-1'].map((id) => running.startFreshWorker(id, { environment })));
    await running.waitForRoster(2, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
    // Workers of one box have directories of their own, named after the digest, or share a whole pack.
    const { packDigest } = await openServedPack(await packOf('tiny'));
    const name = packDigest.slice(0, 16);
    const directories = readdirSync(join(parent, 'odmoe', 'packs'));
    assert.ok(directories.includes(name) && directories.every((other) => [name, `${name}-2`].includes(other)));
    await running.stop('fresh-0');
    await running.startFreshWorker('fresh-0', { environment });
    await running.waitForRoster(2, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
  });

  it('continue their fetching after a kill (SIGKILL)', async () => {
    const running = (cluster = await ProcessCluster.start('tiny', 0, false));
    const directory = join(parent, 'worker');
    const extents = expertExtents((await openServedPack(await packOf('tiny'))).manifest);
    const totalBytes = extents.reduce((sum, extent) => sum + extent.storedBytes, 0);
    link = await SlowLink.open(running.main.address, totalBytes / 2);
    const flags = ['--model', directory];
    const first = await running.startFreshWorker('fresh', { flags, mainAddress: link.address });
    await assert.rejects(running.ask(REQUEST), { code: 'NO_WORKERS', message: /1 worker is still fetching.*fresh/ });
    await waitUntil('some experts are there', () => fetched(directory) >= 6);
    first.signal('SIGKILL');
    await first.exited;
    const kept = fetched(directory);
    assert.ok(kept < extents.length, 'the fetch was over before it could be interrupted');
    const before = link.carriedBytes;
    await running.startFreshWorker('fresh', { flags, mainAddress: link.address });
    await running.waitForRoster(1, 0);
    const expertBytes = totalBytes / extents.length;
    const needed = totalBytes - kept * expertBytes;
    // Half an expert's bytes are left for messages, and what lies between chunks comes along.
    const between = extents.reduce((sum, extent) => sum + extent.endBytes - extent.offsetBytes - extent.storedBytes, 0);
    assert.ok(
      link.carriedBytes - before < needed + between + expertBytes / 2 + 300_000,
      `${link.carriedBytes - before} bytes came again, ${needed} were missing`,
    );
    assertSameAnswer(await running.ask(REQUEST), expected);
  });

  it('refuse a directory that another worker fetches into', async () => {
    const running = (cluster = await ProcessCluster.start('demo', 0, false));
    link = await SlowLink.open(running.main.address, 600_000);
    const flags = ['--model', join(parent, 'worker')];
    await running.startFreshWorker('first', { flags, mainAddress: link.address });
    await assert.rejects(running.startFreshWorker('second', { flags }), /code 3/);
    assert.ok(running.logged('fetches into it; give each worker its own --model').length > 0);
  });
});
