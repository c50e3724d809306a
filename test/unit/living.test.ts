import assert from 'node:assert/strict';
import { EventEmitter, getEventListeners } from 'node:events';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { liveIn, Living, living, onAbort, onEvent } from '../../shared/base/runtime/living.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { openCounted } from '../../shared/base/files/counted-file.js';

const nobodyCalls = (): void => assert.fail('called');

describe('the registry of open resources in a process', () => {
  let registry = new Living();

  beforeEach(() => {
    registry = new Living();
    liveIn(registry);
  });

  afterEach(() => {
    liveIn(null);
  });

  it('names what has not ended, by kind, and removes it once', () => {
    const endFirst = registry.begin('channel', 'host-a:1');
    registry.begin('thread', 'the thread of prompts');
    assert.deepEqual(registry.names(), ['channel: host-a:1', 'thread: the thread of prompts']);
    assert.deepEqual(registry.names(['thread']), ['thread: the thread of prompts']);
    endFirst();
    endFirst();
    assert.deepEqual([registry.count('channel'), registry.counts().thread], [0, 1]);
  });

  it('distinguishes two entries with one name', () => {
    const ends = [registry.begin('channel', 'host-a:1'), registry.begin('channel', 'host-a:1')];
    ends[0]?.();
    assert.equal(registry.count('channel'), 1);
  });

  it('removes a listener of a signal when the signal aborts, and when the listener leaves', () => {
    const abort = new AbortController();
    let heard = 0;
    onAbort(abort.signal, () => (heard += 1));
    const leave = onAbort(abort.signal, nobodyCalls);
    assert.equal(registry.count('abort listener'), 2);
    leave();
    assert.deepEqual([registry.count('abort listener'), getEventListeners(abort.signal, 'abort').length], [1, 1]);
    abort.abort();
    assert.deepEqual([heard, registry.names()], [1, []]);
  });

  it('adds no listener to a signal that has aborted', () => {
    const leave = onAbort(AbortSignal.abort(), nobodyCalls);
    assert.deepEqual(registry.names(), []);
    leave();
  });

  it('holds listeners of emitters until they leave', () => {
    const emitter = new EventEmitter();
    const heard: string[] = [];
    const leave = onEvent(emitter, 'news', (news: string) => heard.push(news));
    emitter.emit('news', 'first');
    emitter.emit('news', 'second');
    assert.equal(registry.count('event listener'), 1);
    leave();
    emitter.emit('news', 'third');
    assert.deepEqual([heard, registry.names(), emitter.listenerCount('news')], [['first', 'second'], [], 0]);
  });

  it('holds an open file by its path until it is closed', async () => {
    const path = join(tmpdir(), `odmoe-living-${process.pid}`);
    const file = await openCounted(path, 'w');
    assert.deepEqual(registry.names(), [`file: ${path}`]);
    await file.close();
    await rm(path);
    assert.deepEqual(registry.names(), []);
  });

  it('holds timers and turns of a real process until they have run or are cancelled', async () => {
    const runtime = new WallRuntime();
    await new Promise<void>((resolve) => {
      runtime.after(0, resolve);
      assert.equal(registry.count('timer'), 1);
    });
    const timers = [runtime.after(60_000, nobodyCalls), runtime.every(60_000, nobodyCalls)];
    const turn = runtime.nextTurn(nobodyCalls);
    assert.deepEqual([registry.count('timer'), registry.count('turn')], [2, 1]);
    for (const timer of [...timers, turn]) timer.cancel();
    assert.deepEqual(registry.names(), []);
  });
});

describe('a wait for a timer or an abort', () => {
  it('leaves neither behind, whichever comes first', async () => {
    const registry = new Living();
    liveIn(registry);
    try {
      const abort = new AbortController();
      const runtime = new WallRuntime();
      await runtime.sleep(0, abort.signal);
      assert.deepEqual(registry.names(), []);
      const sleeping = runtime.sleep(60_000, abort.signal);
      assert.deepEqual([registry.count('timer'), registry.count('abort listener')], [1, 1]);
      abort.abort();
      await sleeping;
      assert.deepEqual(registry.names(), []);
    } finally {
      liveIn(null);
    }
  });
});

describe('a simulated process', () => {
  it('has its own registry, which also holds what its events begin', async () => {
    const clock = new VirtualClock();
    const [one, other] = [new VirtualRuntime(clock, 1), new VirtualRuntime(clock, 2)];
    const abort = new AbortController();
    const listen = async (): Promise<void> => {
      await Promise.resolve();
      onAbort(abort.signal, () => undefined);
    };
    one.after(10, () => void listen());
    other.after(10, () => void listen());
    other.after(20, () => void listen());
    await clock.run(() => clock.nextEventMs === Infinity);
    assert.deepEqual([one.living.count('abort listener'), other.living.count('abort listener')], [1, 2]);
    assert.deepEqual(living().names(['abort listener']), []);
    abort.abort();
    assert.deepEqual([...one.living.names(), ...other.living.names()], []);
  });
});
