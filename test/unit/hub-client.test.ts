import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findSnapshot, listFilesOf } from '../../packs/hub/hub-files.js';
import { packName, parseRepository } from '../../packs/hub/hub-repository.js';
import { hubSettings, readHubToken } from '../../packs/hub/hub-settings.js';
import { askedPauseMs, retryPauseMs, TRIES_LIMIT } from '../../packs/hub/retry-pauses.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { clientOf, gitBlob, HurriedRuntime, type SmallRepository, TOKEN, withSmallHub } from './small-hub.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { refusal } from './tiny-pack.js';

const COMMIT = '0123456789abcdef0123456789abcdef01234567';
const MODEL = { id: 'owner/model' };
const HOME = '/home/nobody';
const CONFIG = { path: 'config.json', sizeBytes: 'content of config.json'.length };

function repository(change: Partial<SmallRepository> = {}): SmallRepository {
  const names = ['config.json', 'tokenizer.json', 'original/a.bin', 'model-1.safetensors', 'model-2.safetensors'];
  const files = new Map(names.map((name) => [name, Buffer.from(`content of ${name}`)]));
  return { commit: COMMIT, files, isLarge: (path) => path.endsWith('.safetensors'), ...change };
}

describe('settings of the hub', () => {
  it('are read as the own library of the hub reads them', () => {
    const plain = hubSettings({}, HOME);
    assert.equal(plain.endpoint, 'https://huggingface.co');
    assert.equal(plain.cacheDirectory, `${HOME}/.cache/huggingface/hub`);
    assert.equal(plain.tokenPath, `${HOME}/.cache/huggingface/token`);
    assert.deepEqual([plain.token, plain.isOffline], [null, false]);
    const cache = (variables: NodeJS.ProcessEnv): string => hubSettings(variables, HOME).cacheDirectory;
    assert.equal(cache({ XDG_CACHE_HOME: '/x' }), '/x/huggingface/hub');
    assert.equal(cache({ XDG_CACHE_HOME: '/x', HF_HOME: '/h' }), '/h/hub');
    assert.equal(cache({ HF_HOME: '/h', HUGGINGFACE_HUB_CACHE: '/old' }), '/old');
    assert.equal(cache({ HUGGINGFACE_HUB_CACHE: '/old', HF_HUB_CACHE: '~/new' }), `${HOME}/new`);
    assert.equal(hubSettings({ HF_HOME: '/h' }, HOME).tokenPath, '/h/token');
    assert.equal(hubSettings({ HF_HOME: '/h', HF_TOKEN_PATH: '/t' }, HOME).tokenPath, '/t');
    assert.equal(
      hubSettings({ HF_ENDPOINT: 'https://mirror.example/hub/' }, HOME).endpoint,
      'https://mirror.example/hub',
    );
    for (const word of ['1', 'yes', 'True', 'ON'])
      assert.ok(hubSettings({ HF_HUB_OFFLINE: word }, HOME).isOffline, word);
    for (const word of ['0', '', 'no']) assert.ok(!hubSettings({ HF_HUB_OFFLINE: word }, HOME).isOffline, word);
    for (const wrong of ['huggingface.co', 'ftp://huggingface.co', 'https://user@huggingface.co']) {
      assert.throws(() => hubSettings({ HF_ENDPOINT: wrong }, HOME), refusal('CONFIG_INVALID', /^HF_ENDPOINT/), wrong);
    }
  });

  it('find the token in the environment, else in its file, and show no malformed one', async () => {
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'token');
      assert.equal(await readHubToken(hubSettings({ HF_TOKEN_PATH: path }, HOME)), null);
      await writeFile(path, `${TOKEN}\n`);
      assert.deepEqual(await readHubToken(hubSettings({ HF_TOKEN_PATH: path }, HOME)), { secret: TOKEN, origin: path });
      const both = hubSettings({ HF_TOKEN_PATH: path, HF_TOKEN: 'hf_other' }, HOME);
      assert.deepEqual(await readHubToken(both), { secret: 'hf_other', origin: 'HF_TOKEN' });
      await writeFile(path, `${TOKEN} twice\n${TOKEN}`);
      await assert.rejects(readHubToken(hubSettings({ HF_TOKEN_PATH: path }, HOME)), (thrown) => {
        assert.ok(!toOdmoeError(thrown).message.includes(TOKEN));
        return refusal('CONFIG_INVALID', /is no token of the hub/)(thrown);
      });
    });
  });

  it('offline, nothing is asked', async () => {
    const settings = hubSettings({ HF_HUB_OFFLINE: '1' }, HOME);
    const { HubClient } = await import('../../packs/hub/hub-client.js');
    assert.throws(
      () => new HubClient({ settings, token: null, runtime: new HurriedRuntime() }),
      refusal('HUB_UNAVAILABLE', /HF_HUB_OFFLINE is set/),
    );
  });
});

describe('names of models on the hub', () => {
  it('are OWNER/NAME; a GGUF file may stand behind a colon, and paths and addresses are no names', () => {
    assert.equal(parseRepository('Qwen/Qwen3-30B-A3B').id, 'Qwen/Qwen3-30B-A3B');
    assert.equal(parseRepository('gpt2').id, 'gpt2');
    assert.deepEqual(parseRepository('owner/model-GGUF:Q4/a-00001-of-00002.gguf'), {
      id: 'owner/model-GGUF',
      file: 'Q4/a-00001-of-00002.gguf',
    });
    for (const wrong of [
      '',
      './pack',
      '/data/pack',
      'a/b/c',
      'a/..',
      '../a',
      'a b/c',
      'a--b/c',
      'https://hub/a',
      `a/${'b'.repeat(100)}`,
      'a/b:',
      'a/b:../c.gguf',
      `a/b:${'c'.repeat(200)}`,
    ]) {
      assert.throws(() => parseRepository(wrong), refusal('USAGE', /is no name of a model on the hub/), wrong);
    }
  });

  it('give the names of directories, another for each commit', () => {
    assert.equal(packName({ ...MODEL, commit: COMMIT }), 'owner--model--0123456789ab');
  });
});

describe('pauses before the hub is asked again', () => {
  it('are what the hub asks for, in seconds, as a date or as the rest of its window', () => {
    const nowMs = Date.parse('Wed, 21 Oct 2026 07:28:00 GMT');
    assert.equal(askedPauseMs('7', null, nowMs), 7000);
    assert.equal(askedPauseMs('Wed, 21 Oct 2026 07:28:30 GMT', null, nowMs), 30_000);
    assert.equal(askedPauseMs('Wed, 21 Oct 2026 07:27:30 GMT', null, nowMs), 0);
    assert.equal(askedPauseMs(null, '"api";r=0;t=55', nowMs), 55_000);
    for (const nonsense of [null, '', 'soon', '-3']) assert.equal(askedPauseMs(nonsense, nonsense, nowMs), null);
  });

  it('double from a second to half a minute, with chance in them', () => {
    assert.deepEqual(
      [1, 2, 3, 9].map((failures) => retryPauseMs(failures, null, 1)),
      [1000, 2000, 4000, 30_000],
    );
    assert.equal(retryPauseMs(1, null, 0), 500);
    assert.equal(retryPauseMs(3, 55_000, 0.5), 55_000);
  });
});

describe('a client of the hub', () => {
  it('finds the commit of a revision and lists all pages of its files', async () => {
    await withSmallHub(async (hub) => {
      const { files } = repository();
      hub.repositories.set(MODEL.id, repository());
      const client = clientOf(hub);
      const snapshot = await findSnapshot(client, MODEL, 'v1.0/beta');
      assert.equal(snapshot.commit, COMMIT);
      const found = await listFilesOf(client, snapshot);
      assert.deepEqual(
        found.map(({ path }) => path),
        [...files.keys()],
      );
      assert.deepEqual(
        found.map(({ digest }) => digest.kind),
        ['git-blob', 'git-blob', 'git-blob', 'sha256', 'sha256'],
      );
      assert.equal(found[0]?.digest.hex, gitBlob(files.get('config.json') ?? Buffer.alloc(0)));
      assert.equal(found[4]?.sizeBytes, files.get('model-2.safetensors')?.length);
      // git hash-object of a file with "hello\n".
      assert.equal(gitBlob(Buffer.from('hello\n')), 'ce013625030ba8dba906f756967f9e9ca394464a');
    });
  });

  it('tells gated, missing and private repositories, wrong revisions and wrong tokens apart, and shows no token', async () => {
    await withSmallHub(async (hub) => {
      hub.repositories.set(MODEL.id, repository());
      hub.repositories.set('owner/secret', repository({ access: 'private' }));
      hub.repositories.set('owner/gated', repository({ access: 'gated' }));
      const [stranger, known] = [clientOf(hub), clientOf(hub, { token: TOKEN })];
      const wrong = clientOf(hub, { token: 'hf_wrong_token' });
      const missing = refusal(
        'MODEL_NOT_FOUND',
        /no such model, or it is private; check the name; if it is private, set HF_TOKEN/,
      );
      await assert.rejects(findSnapshot(stranger, { id: 'owner/none' }, 'main'), missing);
      await assert.rejects(findSnapshot(stranger, { id: 'owner/secret' }, 'main'), missing);
      assert.equal((await findSnapshot(known, { id: 'owner/secret' }, 'main')).commit, COMMIT);
      await assert.rejects(findSnapshot(wrong, { id: 'owner/secret' }, 'main'), (thrown) => {
        assert.ok(!toOdmoeError(thrown).message.includes('hf_wrong_token'));
        return refusal('MODEL_NOT_FOUND', /whether the token in HF_TOKEN may read it/)(thrown);
      });
      await assert.rejects(
        findSnapshot(stranger, MODEL, 'nowhere'),
        refusal('MODEL_NOT_FOUND', /no revision "nowhere"/),
      );
      const gated = { id: 'owner/gated', commit: COMMIT };
      await assert.rejects(
        stranger.openFile(gated, CONFIG, 0),
        refusal('HUB_REFUSED', /accept its terms at http.*owner\/gated, then set HF_TOKEN/),
      );
      await assert.rejects(
        wrong.openFile(gated, CONFIG, 0),
        refusal('HUB_REFUSED', /accept its terms at .* with the account whose token stands in HF_TOKEN/),
      );
      (await known.openFile(gated, CONFIG, 0)).close();
      await assert.rejects(
        stranger.openFile({ ...MODEL, commit: COMMIT }, { ...CONFIG, path: 'absent.json' }, 0),
        refusal('MODEL_NOT_FOUND', /no file absent.json/),
      );
    });
  });

  it('obeys 429, tries again after errors of the server, and gives up in words', async () => {
    await withSmallHub(async (hub) => {
      hub.repositories.set(MODEL.id, repository());
      const runtime = new HurriedRuntime();
      const words: string[] = [];
      const client = clientOf(hub, { runtime, tell: (pause) => words.push(pause) });
      hub.apiFaults.push({ status: 429, headers: { 'retry-after': '55' } }, { status: 502 }, { status: 500 });
      assert.equal((await findSnapshot(client, MODEL, 'main')).commit, COMMIT);
      assert.deepEqual(runtime.pausesMs, [55_000, 1000, 2000]);
      assert.match(words[0] ?? '', /too many requests.*trying again in 55 s/);
      hub.apiFaults.push(...Array.from({ length: TRIES_LIMIT }, () => ({ status: 503 })));
      await assert.rejects(
        findSnapshot(client, MODEL, 'main'),
        refusal('HUB_UNAVAILABLE', /status 503; run the same command later/),
      );
      assert.equal(hub.apiFaults.length, 0);
      hub.apiFaults.push({ status: 429, headers: { 'retry-after': '86400' } });
      await assert.rejects(findSnapshot(client, MODEL, 'main'), refusal('HUB_UNAVAILABLE', /too many requests/));
    });
  });

  it('says that nothing listens, and that something else than a hub answers', async () => {
    await withSmallHub(async (hub) => {
      await assert.rejects(
        findSnapshot(clientOf({ endpoint: 'http://127.0.0.1:1' }), MODEL, 'main'),
        refusal('HUB_UNAVAILABLE', /cannot be reached/),
      );
      hub.apiFaults.push({ status: 200 });
      await assert.rejects(
        findSnapshot(clientOf(hub), MODEL, 'main'),
        refusal('HUB_UNAVAILABLE', /does not answer with JSON; check HF_ENDPOINT/),
      );
    });
  });

  it('sends the token to the hub alone', async () => {
    await withSmallHub(async (hub) => {
      hub.repositories.set(MODEL.id, repository());
      const body = await clientOf(hub, { token: TOKEN }).openFile(
        { ...MODEL, commit: COMMIT },
        { path: 'model-1.safetensors', sizeBytes: 'content of model-1.safetensors'.length },
        3,
      );
      const chunks: Uint8Array[] = [];
      for await (const chunk of body.chunks) chunks.push(chunk);
      body.close();
      assert.equal(Buffer.concat(chunks).toString(), 'content of model-1.safetensors'.slice(3));
      assert.deepEqual(
        hub.requests.map(({ server, authorization, range }) => [server, authorization, range]),
        [
          ['hub', `Bearer ${TOKEN}`, 'bytes=3-'],
          ['store', null, 'bytes=3-'],
        ],
      );
    });
  });

  it('ends at once when the user interrupts', async () => {
    await withSmallHub(async (hub) => {
      const controller = new AbortController();
      controller.abort();
      await assert.rejects(
        findSnapshot(clientOf(hub, { signal: controller.signal }), MODEL, 'main'),
        refusal('CANCELLED', /run the same command again/),
      );
      assert.equal(hub.requests.length, 0);
    });
  });
});
