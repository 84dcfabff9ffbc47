BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'line');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
CREATE TABLE study_lease (
	study VARCHAR(512) NOT NULL, 
	epoch INTEGER NOT NULL, 
	holder TEXT NOT NULL, 
	renewed DOUBLE NOT NULL, 
	expires DOUBLE NOT NULL, 
	PRIMARY KEY (study)
);
INSERT INTO "study_lease" VALUES('line',1,'',1.79607223652701830868e+09,0.0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'format','1');
INSERT INTO "study_user_attributes" VALUES(2,1,'definition','{"trainer": "line", "config.backbone": "embedded", "config.trust_remote_code": false, "config.steps": 6, "config.batch_size": 2, "config.optimiser.lr": 0.001, "config.optimiser.schedule": "linear", "config.optimiser.warmup": 0.1, "config.optimiser.weight_decay": 0.01, "config.optimiser.beta1": 0.9, "config.optimiser.beta2": 0.999, "config.optimiser.epsilon": 1e-08, "config.optimiser.max_grad_norm": 1.0, "config.precision": "auto", "config.threads": null, "config.evaluate_every": 3, "config.checkpoint_every": 2, "config.collapse": true, "controls": [], "points": [{"optimiser.lr": 0.1}, {"optimiser.lr": 0.001}, {"optimiser.lr": 0.2}], "objectives": [{"name": "ndcg_at_10", "direction": "maximize"}], "sampler": "tpe", "pruner.kind": "median", "pruner.first_step": 1, "pruner.reduction_factor": 3, "pruner.startup_trials": 1, "design": "search", "replicates": 2, "seed": 0, "space.optimiser.lr": "{\"name\": \"FloatDistribution\", \"attributes\": {\"step\": null, \"low\": 0.001, \"high\": 0.5, \"log\": false}}"}');
INSERT INTO "study_user_attributes" VALUES(3,1,'checkpoints','null');
INSERT INTO "study_user_attributes" VALUES(4,1,'id','"line-288485717391"');
INSERT INTO "study_user_attributes" VALUES(5,1,'at_default','["config.backbone", "config.collapse", "config.optimiser.beta1", "config.optimiser.beta2", "config.optimiser.epsilon", "config.optimiser.lr", "config.optimiser.max_grad_norm", "config.optimiser.schedule", "config.optimiser.warmup", "config.optimiser.weight_decay", "config.precision", "config.threads", "config.trust_remote_code", "controls", "design", "objectives.0.direction", "pruner.first_step", "pruner.reduction_factor", "sampler", "seed"]');
INSERT INTO "study_user_attributes" VALUES(6,1,'study.launch','"339ddee9430442f3b46ea93a56be3556"');
INSERT INTO "study_user_attributes" VALUES(7,1,'study.host','"head.example"');
INSERT INTO "study_user_attributes" VALUES(8,1,'study.folder','"/tmp/format1/line"');
INSERT INTO "study_user_attributes" VALUES(9,1,'contents','{}');
INSERT INTO "study_user_attributes" VALUES(10,1,'facts','{"data.train": "6 numbers"}');
INSERT INTO "study_user_attributes" VALUES(11,1,'baselines','{"bm25": {"ndcg_at_10": 0.25}}');
INSERT INTO "study_user_attributes" VALUES(12,1,'elapsed','3.145049571990967');
INSERT INTO "study_user_attributes" VALUES(13,1,'importances','{}');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_intermediate_values" VALUES(1,1,0,5.40516972541809082031e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(2,1,3,6.10091388225555419921e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(3,1,6,5.50672829151153564453e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(4,2,0,5.40516972541809082031e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(5,2,3,5.41506230831146240234e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(6,3,0,5.40516972541809082031e-01,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(7,3,3,0.673227846622467,'FINITE');
INSERT INTO "trial_intermediate_values" VALUES(8,3,6,5.51697969436645507812e-01,'FINITE');
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'optimiser.lr',0.1,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.001, "high": 0.5, "log": false}}');
INSERT INTO "trial_params" VALUES(2,2,'optimiser.lr',0.001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.001, "high": 0.5, "log": false}}');
INSERT INTO "trial_params" VALUES(3,3,'optimiser.lr',0.2,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.001, "high": 0.5, "log": false}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'constraints:collapse','-1.0');
INSERT INTO "trial_system_attributes" VALUES(2,2,'constraints:collapse','-1.0');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'row','{"number": 0, "planned_steps": 12, "params": {"optimiser.lr": 0.1}, "state": "complete", "reason": null, "stop": null, "values": {"untrained.ndcg_at_10": 0.7513754367828369, "untrained.test.ndcg_at_10": 0.7513754367828369, "ndcg_at_10": 0.7198378145694733, "test.ndcg_at_10": 0.7198378145694733}, "replicates": [{"seed": 0, "values": {"untrained.ndcg_at_10": 0.5405169725418091, "untrained.test.ndcg_at_10": 0.5405169725418091, "ndcg_at_10": 0.5506728291511536, "test.ndcg_at_10": 0.5506728291511536}, "steps": 6, "state": "complete", "reason": null, "pace": 0.0037370796665830617}, {"seed": 1, "values": {"untrained.ndcg_at_10": 0.9622339010238647, "untrained.test.ndcg_at_10": 0.9622339010238647, "ndcg_at_10": 0.889002799987793, "test.ndcg_at_10": 0.889002799987793}, "steps": 6, "state": "complete", "reason": null, "pace": 0.0058565666665041744}], "step": 0, "attempts": 1, "launched": null, "used": 1.9416313171386719, "trained": 0.4429207939992921, "saved": 0.0, "checkpoint": "trials/0000/replicate-1/model", "retry_of": null, "control": false, "refused": false, "hashes": {"0": {"hash.initialisation": "22d62791e7b0f7c9", "hash.data_order": "91611bac27f03d01"}, "1": {"hash.initialisation": "b4411ce80cd000aa", "hash.data_order": "91611bac27f03d01"}}, "latest": {"ndcg_at_10": 0.889002799987793, "train.loss": 12.491790771484375}}');
INSERT INTO "trial_user_attributes" VALUES(2,2,'row','{"number": 1, "planned_steps": 12, "params": {"optimiser.lr": 0.001}, "state": "pruned", "reason": "pruned at step 3: ndcg_at_10 0.5415 lags behind the other trials", "stop": "pruned at step 3: ndcg_at_10 0.5415 lags behind the other trials", "values": {"untrained.ndcg_at_10": 0.5405169725418091, "untrained.test.ndcg_at_10": 0.5405169725418091, "ndcg_at_10": 0.5415062308311462}, "replicates": [], "step": 3, "attempts": 1, "launched": null, "used": 0.23997068405151367, "trained": 0.1871388300005492, "saved": 0.019181454003046383, "checkpoint": "trials/0001/replicate-0/step-00000003", "retry_of": null, "control": false, "refused": false, "hashes": {"0": {"hash.initialisation": "22d62791e7b0f7c9", "hash.data_order": "91611bac27f03d01"}}, "latest": {"ndcg_at_10": 0.5415062308311462, "train.loss": 0.0068063451908528805}}');
INSERT INTO "trial_user_attributes" VALUES(3,3,'row','{"number": 2, "planned_steps": 12, "params": {"optimiser.lr": 0.2}, "state": "running", "reason": "stopped by SIGINT", "stop": null, "values": {}, "replicates": [{"seed": 0, "values": {"untrained.ndcg_at_10": 0.5405169725418091, "untrained.test.ndcg_at_10": 0.5405169725418091, "ndcg_at_10": 0.5516979694366455, "test.ndcg_at_10": 0.5516979694366455}, "steps": 6, "state": "complete", "reason": null, "pace": 0.0014750000000276486}], "step": 3, "attempts": 1, "launched": null, "used": 0.3824613094329834, "trained": 0.19974437600103556, "saved": 0.0, "checkpoint": "trials/0002/replicate-1/step-00000003", "retry_of": null, "control": false, "refused": false, "hashes": {"0": {"hash.initialisation": "22d62791e7b0f7c9", "hash.data_order": "91611bac27f03d01"}, "1": {"hash.initialisation": "b4411ce80cd000aa", "hash.data_order": "91611bac27f03d01"}}, "latest": {"ndcg_at_10": 1.010833978652954, "train.loss": 1.4748462438583374}}');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,7.19837814569473266601e-01,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,5.41506230831146240234e-01,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-30 20:57:12.352723','2026-11-30 20:57:14.460618');
INSERT INTO "trials" VALUES(2,1,1,'PRUNED','2026-11-30 20:57:14.500841','2026-11-30 20:57:14.844248');
INSERT INTO "trials" VALUES(3,2,1,'RUNNING','2026-11-30 20:57:14.860207',NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
