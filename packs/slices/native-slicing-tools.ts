import { sliceRows } from '../../native/index.js';
import { NATIVE_PACKING_TOOLS } from '../packing/native-tools.js';
import type { PackingTools } from '../packing/packing-context.js';
import type { SlicingTools } from './slice-matrix.js';

/** The tools for slicing on this machine: the native addon and its disk. */
export const NATIVE_SLICING_TOOLS: PackingTools & SlicingTools = { ...NATIVE_PACKING_TOOLS, sliceRows };
