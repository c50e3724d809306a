import type { PassTap } from './accounts/recorder.js';
import { type Devices, NATIVE_DEVICES } from '../../engine/devices/devices.js';
import { pacedDevice } from '../../engine/emulation/paced-device.js';
import type { DevicePace } from '../../engine/emulation/device-pace.js';
import {
  type CudaStatus,
  type Device,
  type ExpertSlots,
  innerHandle,
  type RouterChoice,
  type Model,
  type Pass,
  type Sequence,
  wrapHandle,
} from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { Falsify } from './false-values.js';
import { counted, noHandles, type HandleCounts } from './device-handles.js';

/** Reported instead of the CUDA devices of the real machine. */
const NO_CUDA: CudaStatus = {
  built: false,
  library: '',
  architectures: [],
  usable: false,
  reason: 'simulated',
  driverVersion: null,
  runtimeVersion: null,
  devices: [],
};

/** The present faults of a node's devices, and the observations on them. It survives a restart of the node. */
export class DeviceFaults {
  /** The device no longer works. */
  lost = false;
  /** Number of further requests for memory that are refused. */
  refusals = 0;
  /** Reads of the pack fail. */
  readsFail = false;
  /** Factor for the time of a load, and factor for the time of all operations of the device's processor. */
  readSlowness = 1;
  slowness = 1;
  /** Replaces outputs by false values; null: outputs are right. */
  falsify: Falsify | null = null;
  /** Broken invariants that were seen on the device. */
  readonly violations: string[] = [];
  /** Real work under way on its devices. */
  private readonly working = new Set<Promise<unknown>>();
  /** Handles of the latest start of the process. */
  handles: HandleCounts = noHandles();
  /**
   * Counts of the slots that there are, since the latest start of the process: experts that were loaded, and bytes read for them and for loads that
   * ended without their expert.
   */
  loaded = { loads: 0, readBytes: 0 };
  /** Main only: receives the rows and choices of its passes. */
  passTap: PassTap | null = null;
  /** Number of passes with rows of several sequences. */
  sharedPasses = 0;
  /** Number of failed operations of these passes. */
  brokenSharedPasses = 0;
  private passesBegun = 0;
  /** Devices and the handles made on them, in the order of creation. */
  private readonly opened = new Set<Disposable>();
  private readonly sequenceNumbers = new WeakMap<Sequence, number>();
  private sequencesCreated = 0;

  /** `convertError`: converts the error of a failed real load to the error that a daemon gets. */
  constructor(private readonly convertError: (thrown: unknown) => OdmoeError) {}

  /** The devices of one start of the process. `pace`: the times of operations on a device with that budget. */
  devices(runtime: VirtualRuntime, pace: (budgetBytes: number) => DevicePace): Devices {
    const handles = (this.handles = noHandles());
    this.sequencesCreated = 0;
    this.loaded = { loads: 0, readBytes: 0 };
    return {
      cudaStatus: () => NO_CUDA,
      open: (request) => {
        if (this.lost) throw lostError();
        const native = this.watched(NATIVE_DEVICES.open({ ...request, threads: 1, budgetBytes: 0 }), runtime);
        const device = pacedDevice(native, pace(request.budgetBytes), runtime);
        this.opened.add(device);
        return this.wrapDevice(device, handles);
      },
    };
  }

  /** Disposes of the devices of killed processes after their real work has ended. */
  async disposeAll(): Promise<void> {
    while (this.working.size > 0) await Promise.allSettled(this.working);
    for (const handle of [...this.opened].reverse()) handle.dispose();
    this.opened.clear();
  }

  /** Records real work, below the paced device. */
  private watched(device: Device, runtime: VirtualRuntime): Device {
    const work = <Result>(begun: Promise<Result>): Promise<Result> => this.work(begun, runtime);
    return wrapHandle(device, {
      createModel: (shape) => watchedModel(this.held(device.createModel(shape)), work),
      createExpertSlots: (...args) => watchedSlots(this.held(device.createExpertSlots(...args)), work),
    });
  }

  /** Records the handle, because a killed process disposes of nothing: disposeAll does it in the end. */
  private held<Handle extends Disposable>(handle: Handle): Handle {
    this.opened.add(handle);
    const dispose = (): void => {
      this.opened.delete(handle);
      handle.dispose();
    };
    return wrapHandle<Disposable>(handle, { dispose }) as Handle;
  }

  private work<Result>(work: Promise<Result>, runtime: VirtualRuntime): Promise<Result> {
    runtime.watch(work);
    const settled = work.then(
      () => undefined,
      () => undefined,
    );
    this.working.add(settled);
    void settled.then(() => this.working.delete(settled));
    return work;
  }

  private wrapDevice(device: Device, handles: HandleCounts): Device {
    return counted(device, handles, 'devices', {
      // Hides values that differ from machine to machine.
      info: () => ({ ...device.info(), instructionSet: 'simulated', threads: 1 }),
      createModel: (shape) => {
        this.requireSound();
        return this.wrapModel(device.createModel(shape), device, handles);
      },
      createExpertSlots: (...args) => {
        this.requireMemory();
        const slots = this.wrapSlots(device.createExpertSlots(...args), handles);
        this.checkBudget(device);
        return slots;
      },
      dispose: () => {
        this.opened.delete(device);
        device.dispose();
      },
    });
  }

  private wrapModel(model: Model, device: Device, handles: HandleCounts): Model {
    const isHead = model.shape.draftHead !== undefined;
    return counted(model, handles, 'models', {
      // A sequence takes no memory at first, only for its rows.
      createSequence: () => {
        this.requireSound();
        return this.wrapSequence(model.createSequence(), handles, isHead);
      },
      createPass: (...args) => {
        this.requireMemory();
        return this.wrapPass(model.createPass(...args), device, handles, isHead);
      },
    });
  }

  /** `isHead`: of a head that drafts, whose sequences and passes are no answer's. */
  private wrapSequence(sequence: Sequence, handles: HandleCounts, isHead: boolean): Sequence {
    const wrapped = counted(sequence, handles, 'sequences', {
      fork: (length) => {
        this.requireSound();
        return this.wrapSequence(sequence.fork(length), handles, isHead);
      },
    });
    if (!isHead) this.sequenceNumbers.set(wrapped, this.sequencesCreated++);
    return wrapped;
  }

  private wrapPass(pass: Pass, device: Device, handles: HandleCounts, isHead: boolean): Pass {
    const tap = (): PassTap | null => (isHead ? null : this.passTap);
    let begun = { pass: -1, rows: 0, isShared: false };
    const noted = async <Result>(operation: () => Promise<Result>): Promise<Result> => {
      try {
        return await operation();
      } catch (thrown) {
        if (begun.isShared) this.brokenSharedPasses += 1;
        throw thrown;
      }
    };
    return counted(pass, handles, 'passes', {
      begin: async (sequences, owners, positions, tokenIds, states) => {
        const isShared = new Set(owners).size > 1;
        if (isShared) this.sharedPasses += 1;
        begun = { pass: -1, rows: positions.length, isShared };
        await noted(async () => this.requireMemory());
        begun.pass = this.passesBegun++;
        const rows = [...positions].map((position, row) => ({
          sequence: this.numberOf(sequences[owners[row] ?? 0]),
          position,
          tokenId: tokenIds[row] ?? -1,
        }));
        tap()?.begun(begun.pass, rows);
        const inner = sequences.map(innerHandle);
        await noted(() => pass.begin(inner, owners, positions, tokenIds, states));
        this.checkBudget(device);
      },
      attend: async (...args) => {
        this.requireSound();
        const choice = await noted(() => pass.attend(...args));
        tap()?.chosen(begun.pass, args[0], byRow(choice, begun.rows));
        return choice;
      },
      chooseAhead: async (...args) => {
        this.requireSound();
        return pass.chooseAhead(...args);
      },
      combine: async (...args) => {
        this.requireSound();
        return pass.combine(...args);
      },
      forward: async (...args) => {
        this.requireSound();
        return pass.forward(...args);
      },
      states: async (...args) => {
        this.requireSound();
        return pass.states(...args);
      },
      logits: async (...args) => {
        return noted(async () => {
          this.requireMemory();
          return pass.logits(...args);
        });
      },
    });
  }

  private wrapSlots(slots: ExpertSlots, handles: HandleCounts): ExpertSlots {
    const { loaded } = this;
    const own = { loads: 0, readBytes: 0 };
    return counted(slots, handles, 'slots', {
      load: async (...args) => {
        this.requireSound();
        if (this.readsFail) throw new OdmoeError('STORAGE_FAILED', 'reading the pack failed (simulated)');
        const outcome = await slots.load(...args).catch((thrown: unknown) => {
          throw this.convertError(thrown);
        });
        // Lower slices that are added to a loaded expert are no further expert.
        const isExpert = outcome.loaded && args[2].parts.exponent.from !== 'notWanted';
        for (const counts of [loaded, own]) {
          counts.readBytes += outcome.readBytes;
          if (isExpert) counts.loads += 1;
        }
        return outcome;
      },
      execute: async (...args) => {
        this.requireSound();
        const executed = await slots.execute(...args);
        this.falsify?.(args[3]);
        return executed;
      },
      dispose: () => {
        // A slot that main makes to decide a check is gone before its worker is stopped: its load is none of the worker.
        loaded.loads -= own.loads;
        loaded.readBytes -= own.readBytes;
        Object.assign(own, { loads: 0, readBytes: 0 });
        slots.dispose();
      },
      pack: async (...args) => {
        this.requireSound();
        return slots.pack(...args);
      },
      hold: async (...args) => {
        this.requireSound();
        if (this.readsFail) throw new OdmoeError('STORAGE_FAILED', 'reading the pack failed (simulated)');
        return slots.hold(...args).catch((thrown: unknown) => {
          throw this.convertError(thrown);
        });
      },
    });
  }

  private numberOf(sequence: Sequence | undefined): number {
    return (sequence === undefined ? undefined : this.sequenceNumbers.get(sequence)) ?? -1;
  }

  private checkBudget(device: Device): void {
    const { budgetBytes, usedBytes, highWaterBytes } = device.info();
    if (budgetBytes > 0 && Math.max(usedBytes, highWaterBytes) > budgetBytes)
      this.violations.push(`${highWaterBytes} bytes were in use at a time, and the budget is ${budgetBytes}`);
  }

  private requireSound(): void {
    if (this.lost) throw lostError();
  }

  private requireMemory(): void {
    this.requireSound();
    if (this.refusals === 0) return;
    this.refusals -= 1;
    throw new OdmoeError('DEVICE_OUT_OF_MEMORY', 'the device gives no memory (simulated)');
  }
}

interface Disposable {
  dispose(): void;
}

type Watch = <Result>(work: Promise<Result>) => Promise<Result>;

function watchedModel(model: Model, work: Watch): Model {
  return wrapHandle(model, {
    loadDense: (...args) => work(model.loadDense(...args)),
    loadResidentExpert: (...args) => work(model.loadResidentExpert(...args)),
    createPass: (...args) => watchedPass(model.createPass(...args), work),
  });
}

function watchedPass(pass: Pass, work: Watch): Pass {
  return wrapHandle(pass, {
    begin: (...args) => work(pass.begin(...args)),
    attend: (...args) => work(pass.attend(...args)),
    chooseAhead: (...args) => work(pass.chooseAhead(...args)),
    combine: (...args) => work(pass.combine(...args)),
    // Left out, because their time depends on the real machine and no history may depend on that.
    attendHere: undefined,
    combineHere: undefined,
    forward: (...args) => work(pass.forward(...args)),
    states: (...args) => work(pass.states(...args)),
    logits: (...args) => work(pass.logits(...args)),
  });
}

function watchedSlots(slots: ExpertSlots, work: Watch): ExpertSlots {
  return wrapHandle(slots, {
    load: (...args) => work(slots.load(...args)),
    execute: (...args) => work(slots.execute(...args)),
    // Left out, because its time depends on the real machine and no history may depend on that.
    executeHere: undefined,
    hold: (...args) => work(slots.hold(...args)),
    pack: (...args) => work(slots.pack(...args)),
  });
}

function lostError(): OdmoeError {
  return new OdmoeError('DEVICE_LOST', 'the device has failed (simulated)');
}

/** The router's choice, by row. */
function byRow({ experts }: RouterChoice, rows: number): number[][] {
  const perRow = experts.length / rows;
  return Array.from({ length: rows }, (_, row) => [...experts.subarray(row * perRow, (row + 1) * perRow)]);
}
