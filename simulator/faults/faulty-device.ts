import type { Devices } from '../../engine/devices/index.js';
import { NATIVE_DEVICES, pacedDevice, type DevicePace } from '../../engine/devices/index.js';
import type { CudaStatus, Device, ExpertSlots, Model, Pass } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import type { VirtualRuntime } from '../../shared/runtime/index.js';

/** Whatever the machine has that the simulation runs on. */
const NO_CUDA: CudaStatus = {
  ...{ built: false, library: '', architectures: [], usable: false, reason: 'simulated' },
  ...{ driverVersion: null, runtimeVersion: null, devices: [] },
};

/** What is wrong with a node's devices at present, and what was seen of them. Outlives a restart of the node. */
export class DeviceFaults {
  /** The device does nothing any more. */
  lost = false;
  /** So many of the next requests for memory are refused. */
  refusals = 0;
  /** Reads of the pack fail. */
  readsFail = false;
  /** A load takes so many times as long. */
  readSlowness = 1;
  /** What should never be, seen on the device. */
  readonly violations: string[] = [];
  /** Real work under way on its devices. */
  private readonly working = new Set<Promise<unknown>>();
  private readonly opened = new Set<Device>();

  /** `told`: the error that a daemon gets to see when a real load fails. */
  constructor(private readonly told: (thrown: unknown) => OdmoeError) {}

  /** The devices of one start of the process. `pace`: what operations take. */
  devices(runtime: VirtualRuntime, pace: () => DevicePace): Devices {
    return {
      cudaStatus: () => NO_CUDA,
      open: (request) => {
        if (this.lost) throw lostError();
        const native = this.watched(NATIVE_DEVICES.open({ ...request, threads: 1 }), runtime);
        const device = pacedDevice(native, pace(), runtime);
        this.opened.add(device);
        return this.wrapDevice(device);
      },
    };
  }

  /** Devices of processes that were killed go when their real work has ended. */
  async disposeAll(): Promise<void> {
    while (this.working.size > 0) await Promise.allSettled(this.working);
    for (const device of this.opened) device.dispose();
    this.opened.clear();
  }

  /** Notes real work, below the pace. */
  private watched(device: Device, runtime: VirtualRuntime): Device {
    const work = <Result>(begun: Promise<Result>): Promise<Result> => this.work(begun, runtime);
    return withMethods(device, {
      createModel: (shape) => watchedModel(device.createModel(shape), work),
      createExpertSlots: (...args) => watchedSlots(device.createExpertSlots(...args), work),
    });
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

  private wrapDevice(device: Device): Device {
    return withMethods(device, {
      // What differs from machine to machine is not told to anybody.
      info: () => ({ ...device.info(), instructionSet: 'simulated', threads: 1 }),
      createModel: (shape) => {
        this.requireSound();
        return this.wrapModel(device.createModel(shape));
      },
      createExpertSlots: (...args) => {
        this.requireMemory();
        return this.wrapSlots(device.createExpertSlots(...args));
      },
      dispose: () => {
        this.opened.delete(device);
        device.dispose();
      },
    });
  }

  private wrapModel(model: Model): Model {
    return withMethods(model, {
      createSequence: () => {
        this.requireMemory();
        return model.createSequence();
      },
      createPass: (rows) => {
        this.requireMemory();
        return this.wrapPass(model.createPass(rows));
      },
    });
  }

  private wrapPass(pass: Pass): Pass {
    return withMethods(pass, {
      begin: async (...args) => {
        this.requireMemory();
        return pass.begin(...args);
      },
      attend: async (...args) => {
        this.requireSound();
        return pass.attend(...args);
      },
      combine: async (...args) => {
        this.requireSound();
        return pass.combine(...args);
      },
      forward: async (...args) => {
        this.requireSound();
        return pass.forward(...args);
      },
      logits: async (...args) => {
        this.requireMemory();
        return pass.logits(...args);
      },
    });
  }

  private wrapSlots(slots: ExpertSlots): ExpertSlots {
    return withMethods(slots, {
      load: async (...args) => {
        this.requireSound();
        if (this.readsFail) throw new OdmoeError('STORAGE_FAILED', 'reading the pack failed (simulated)');
        return slots.load(...args).catch((thrown: unknown) => {
          throw this.told(thrown);
        });
      },
      execute: async (...args) => {
        this.requireSound();
        return slots.execute(...args);
      },
    });
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

type Watch = <Result>(work: Promise<Result>) => Promise<Result>;

function watchedModel(model: Model, work: Watch): Model {
  return withMethods(model, {
    loadDense: (...args) => work(model.loadDense(...args)),
    loadResidentExpert: (...args) => work(model.loadResidentExpert(...args)),
    createPass: (rows) => watchedPass(model.createPass(rows), work),
  });
}

function watchedPass(pass: Pass, work: Watch): Pass {
  return withMethods(pass, {
    begin: (...args) => work(pass.begin(...args)),
    attend: (...args) => work(pass.attend(...args)),
    combine: (...args) => work(pass.combine(...args)),
    forward: (...args) => work(pass.forward(...args)),
    logits: (...args) => work(pass.logits(...args)),
  });
}

function watchedSlots(slots: ExpertSlots, work: Watch): ExpertSlots {
  return withMethods(slots, {
    load: (...args) => work(slots.load(...args)),
    execute: (...args) => work(slots.execute(...args)),
  });
}

function lostError(): OdmoeError {
  return new OdmoeError('DEVICE_LOST', 'the device has failed (simulated)');
}

/** The handle with some of its methods replaced. */
function withMethods<Handle extends object>(handle: Handle, methods: Partial<Handle>): Handle {
  return new Proxy(handle, {
    get: (target, name) => {
      if (Object.hasOwn(methods, name)) return methods[name as keyof Handle];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}
