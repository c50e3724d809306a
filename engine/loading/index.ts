export { loadDenseWeights, loadResidentExperts, type LoadProgress } from './load-weights.js';
export { openModelSource } from './open-model-source.js';
export { openServedPack } from './open-served-pack.js';
export { packForServing } from './pack-for-serving.js';
export { RegisteredExperts } from './registered-experts.js';
