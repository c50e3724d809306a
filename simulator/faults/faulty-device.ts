import type { Devices } from '../../engine/devices/index.js';
import { NATIVE_DEVICES, pacedDevice, type DevicePace } from '../../engine/devices/index.js';
import type { Device, ExpertSlots, Model, Pass } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import type { VirtualRuntime } from '../../shared/runtime/index.js';

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
  /** Real work under way: nothing may change under it. */
  readonly working = new Set<Promise<unknown>>();
  private readonly opened = new Set<Device>();

  /** The devices of one start of the process. `pace`: what operations take. */
  devices(runtime: VirtualRuntime, pace: () => DevicePace): Devices {
    return {
      cudaStatus: () => NATIVE_DEVICES.cudaStatus(),
      open: (request) => {
        if (this.lost) throw lostError();
        const native = this.watched(NATIVE_DEVICES.open({ ...request, threads: 1 }));
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
  private watched(device: Device): Device {
    return withMethods(device, {
      createModel: (shape) => this.watchedModel(device.createModel(shape)),
      createExpertSlots: (...args) => this.watchedSlots(device.createExpertSlots(...args)),
    });
  }

  private watchedModel(model: Model): Model {
    return withMethods(model, {
      loadDense: (...args) => this.work(model.loadDense(...args)),
      loadResidentExpert: (...args) => this.work(model.loadResidentExpert(...args)),
      createPass: (rows) => this.watchedPass(model.createPass(rows)),
    });
  }

  private watchedPass(pass: Pass): Pass {
    return withMethods(pass, {
      begin: (...args) => this.work(pass.begin(...args)),
      attend: (...args) => this.work(pass.attend(...args)),
      combine: (...args) => this.work(pass.combine(...args)),
      forward: (...args) => this.work(pass.forward(...args)),
      logits: (...args) => this.work(pass.logits(...args)),
    });
  }

  private watchedSlots(slots: ExpertSlots): ExpertSlots {
    return withMethods(slots, {
      load: (...args) => this.work(slots.load(...args)),
      execute: (...args) => this.work(slots.execute(...args)),
    });
  }

  private work<Result>(work: Promise<Result>): Promise<Result> {
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
        return slots.load(...args);
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
