export { groupForLayer, layersOfWorker, planPlacement, type PlacementInput } from './plan-placement.js';
export { assignPredictedExperts } from './assign-predicted-experts.js';
export { matchExperts, type ExpertAssignment, type ExpertMatch, type ExpertRelease } from './match-experts.js';
export { workersForPrefillExpert } from './prefill-workers.js';
export { chooseReplacement } from './choose-replacement.js';
export { neededExperts, type ExpertPlace } from './needed-experts.js';
export { assignmentOf } from './assignment-of.js';
export { firstLayerWorkers } from './first-layer-workers.js';
export { ExpertDealer, REMEMBERED_PASSES } from './expert-dealer.js';
